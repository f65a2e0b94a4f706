"""From a clean clone to a stack that serves, is watched, and goes on while parts of it die. In the order it stands."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.stack.stack import ROOT, Stack, clone, missing_tools, run

pytestmark = [pytest.mark.timeout(1800), pytest.mark.xdist_group("stack")]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    assert not missing_tools()
    stack = Stack(clone(tmp_path_factory.mktemp("stack")))
    try:
        stack.up()
        yield stack
    finally:
        stack.down()


def received(answer: dict[str, Any]) -> dict[str, Any]:
    """What reached Triton."""
    assert answer["status"] == 200, answer
    given: dict[str, Any] = json.loads(answer["received"])
    return given


def test_curl_of_the_readme_reaches_triton_with_parameters_of_its_tier(stack: Stack) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (curl,) = re.findall(r"^curl -s http://127\.0\.0\.1:10000/v2/.*$", readme, re.MULTILINE)

    printed = run("sh", "-c", curl.replace("127.0.0.1:10000", f"127.0.0.1:{stack.ports['ENVOY_PORT']}"))

    strict = received({"status": 200, **json.loads(printed)})
    assert (round(strict["temperature"], 3), strict["max_tokens"], round(strict["top_p"], 3)) == (0.3, 120, 0.85)
    assert round(received(stack.ask("Write a slogan for a coffee shop"))["temperature"], 3) == 0.9


def test_only_envoy_is_published_on_every_address(stack: Stack) -> None:
    published = {service: run("docker", "port", stack.container(service)).split() for service in stack.lasting}

    everywhere = {service for service, ports in published.items() if any("0.0.0.0:" in port for port in ports)}
    assert everywhere == {"envoy"}
    assert not any(published[service] for service in ("redis", "alertmanager", "triton-1", "triton-2", "llamacpp"))


def test_redis_asks_for_the_password_of_its_file(stack: Stack) -> None:
    assert "NOAUTH" in stack.inside("redis", "redis-cli ping 2>&1; true")
    assert "PONG" in stack.inside("redis", "REDISCLI_AUTH=$(cat /run/redis-auth/password) redis-cli ping")
    assert "requirepass" not in stack.inside("redis", "cat /proc/1/cmdline")


def test_every_target_of_prometheus_is_up(stack: Stack) -> None:
    def health() -> dict[str, str]:
        active = stack.page("PROMETHEUS_PORT", "/api/v1/targets")["data"]["activeTargets"]
        return {each["scrapeUrl"]: each["health"] for each in active}

    stack.wait("every target is up", lambda: set(health().values()) == {"up"})
    assert len(health()) == 8

    def requests() -> list[Any]:
        found: list[Any] = stack.page("PROMETHEUS_PORT", "/api/v1/query?query=sum(llm_requests_total)")["data"][
            "result"
        ]
        return found

    stack.wait("the requests of the tests above are counted", lambda: bool(requests()))


def test_weights_follow_the_gpu_exporter(stack: Stack) -> None:
    def lighter() -> bool:
        weight = {each["hostname"]: each["weight"] for each in endpoints(stack)}
        return weight["triton-2"] < weight["triton-1"]

    stack.wait("the fuller GPU's server weighs less", lighter)


def test_a_dead_triton_is_drained_and_nobody_notices(stack: Stack) -> None:
    stack.kill("triton-2")
    stack.wait("triton-2 is drained", lambda: draining(stack) == ["triton-2"])
    answers = [stack.ask() for _ in range(20)]

    assert {answer["status"] for answer in answers} == {200}
    assert {answer["server"] for answer in answers} == {"triton-1"}
    stack.start("triton-2")
    stack.wait("triton-2 serves again", lambda: stack.ask().get("server") == "triton-2")


def test_traffic_flows_while_the_sidecar_is_dead(stack: Stack) -> None:
    stack.kill("sidecar")
    answers = [stack.ask() for _ in range(20)]

    assert {answer["status"] for answer in answers} == {200}
    assert "max_tokens" not in received(answers[-1]), "nobody judged it"
    stack.start("sidecar")
    stack.wait("requests are judged again", lambda: received(stack.ask()).get("max_tokens") == 120)


@pytest.mark.parametrize("page", ["docs/compose.md", "docs/failures.md"])
def test_commands_of_the_page(stack: Stack, page: str) -> None:
    """All but up and down, which begin and end this stack."""
    blocks = re.findall(
        r"^```sh\n(.*?)^```$", (stack.home / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    lines = [
        line for block in blocks for line in block.splitlines() if not re.search(r"up -d --build| down ", line)
    ]
    assert lines

    printed = [stack.types(line) for line in lines]

    assert any("triton" in each for each in printed)
    stack.wait("every service is healthy again", stack.all_healthy)
    if "load" in "".join(lines):
        stack.wait("load is answered", lambda: "200=" in stack.compose("logs", "load"))


def test_down_leaves_nothing(stack: Stack) -> None:
    assert stack.left()
    stack.down()

    assert stack.left() == []


def endpoints(stack: Stack) -> list[dict[str, Any]]:
    """Of the Triton pool, as the sidecar's page tells them."""
    (pool,) = [pool for pool in stack.page("ADMIN_PORT", "/weights")["pools"] if pool["name"] == "triton"]
    found: list[dict[str, Any]] = pool["endpoints"]
    return found


def draining(stack: Stack) -> list[str]:
    return [each["hostname"] for each in endpoints(stack) if each["draining"]]

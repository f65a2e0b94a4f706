"""From settings, endpoints and weights to the plan of an Envoy config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from extproc import deployment
from extproc.deployment import (
    Standing,
    absolute,
    address,
    engines,
    ext_proc_listeners,
    has_grpc,
    plan,
    static_plan,
    tcp,
    workers,
)
from extproc.errors import CannotStart
from extproc.model.names import Engine
from extproc.model.topology import Endpoint
from extproc.resources.plan import EngineCluster, Pipe, Served, Tcp
from extproc.settings import Settings, load
from tests.decide.worlds import pools

STATE = Path("/run/x")
ONE = pools(Engine.VLLM)
ENDPOINT = {"address": "10.0.0.1", "http_port": 8000}


def settings(*listed: dict[str, Any], **more: Any) -> Settings:
    """With these pools, called a, b, … and vLLM unless they say otherwise."""
    named = [{"name": "abc"[number], "engine": "vllm"} | each for number, each in enumerate(listed)]
    return load(yaml.safe_dump({"pools": named, **more}))


# ── addresses ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("127.0.0.1:80", Tcp("127.0.0.1", 80)),
        ("[::1]:80", Tcp("::1", 80)),
        ("localhost:0", Tcp("localhost", 0)),
        ("unix:a.sock", Pipe("/run/x/a.sock")),
        ("unix:/abs/a.sock", Pipe("/abs/a.sock")),
    ],
)
def test_addresses(text: str, found: Tcp | Pipe) -> None:
    assert address(text, STATE) == found
    if isinstance(found, Tcp):
        assert tcp(text) == found


# ── workers ──────────────────────────────────────────────────────────────────────────────────────


def listeners(ext_proc: str, count: int | str) -> Settings:
    return load(yaml.safe_dump({"workers": count, "listeners": {"ext_proc": ext_proc}}))


@pytest.mark.parametrize(
    ("configured", "count", "found"),
    [
        ("unix:extproc.sock", 1, ["unix:extproc.sock"]),
        ("127.0.0.1:0", 1, ["127.0.0.1:0"]),
        ("unix:extproc.sock", 2, ["unix:extproc-1.sock", "unix:extproc-2.sock"]),
        ("unix:/run/a.b/x.y.sock", 2, ["unix:/run/a.b/x.y-1.sock", "unix:/run/a.b/x.y-2.sock"]),
        ("unix:plain", 2, ["unix:plain-1", "unix:plain-2"]),
        ("127.0.0.1:9000", 3, ["127.0.0.1:9000", "127.0.0.1:9001", "127.0.0.1:9002"]),
        ("[::1]:65534", 2, ["[::1]:65534", "[::1]:65535"]),
        ("127.0.0.1:0", 2, ["127.0.0.1:0", "127.0.0.1:0"]),  # whichever are free, not port 1
    ],
)
def test_each_worker_has_an_address(configured: str, count: int, found: list[str]) -> None:
    given = listeners(configured, count)
    assert ext_proc_listeners(given) == tuple(found)
    assert plan(given, STATE, ()).ext_proc == tuple(address(each, STATE) for each in found)


def test_more_workers_than_ports() -> None:
    with pytest.raises(CannotStart, match=r"no 3 ports from listeners\.ext_proc 127\.0\.0\.1:65534 on"):
        ext_proc_listeners(listeners("127.0.0.1:65534", 3))


def test_no_address_stands_twice() -> None:
    found = ext_proc_listeners(listeners("unix:a-1.sock", 256))
    assert len(set(found)) == 256


@pytest.mark.parametrize(
    ("given", "found"),
    [("unix:a", "unix:/run/x/a"), ("unix:/a", "unix:/a"), ("h:1", "h:1"), ("unix:b/a", "unix:/run/x/b/a")],
)
def test_sockets_are_below_the_state_directory(given: str, found: str) -> None:
    assert absolute(given, STATE) == found


@pytest.mark.parametrize(
    ("quota", "found"),
    [
        ("max 100000\n", 8),
        ("200000 100000\n", 2),
        ("250000 100000\n", 2),
        ("50000 100000\n", 1),
        ("9900000 100000\n", 8),
        ("", 8),
        ("nonsense\n", 8),
        (None, 8),
    ],
)
def test_one_worker_per_core_that_we_may_use(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, quota: str | None, found: int
) -> None:
    file = tmp_path / "cpu.max"
    if quota is not None:
        file.write_text(quota)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(deployment, "CPU_QUOTA", file)
    assert workers(listeners("unix:a", "auto")) == found
    assert workers(listeners("unix:a", 3)) == 3


# ── plans ────────────────────────────────────────────────────────────────────────────────────────


def test_the_plan_of_the_defaults() -> None:
    made = static_plan(load(ONE), STATE)
    assert [engine.name for engine in made.engines] == ["vllm"]
    assert (made.ext_proc, made.control) == ((Pipe("/run/x/extproc.sock"),), Pipe("/run/x/control.sock"))
    assert made.admin == Pipe("/run/x/envoy-admin.sock")
    assert made.listener == Tcp("127.0.0.1", 10000)
    assert (made.fail_open, made.unknown_paths, made.max_body_bytes) == (True, "reject", 16 << 20)
    assert (made.extra_paths, made.extra_allowed_headers) == ((), ("authorization",))
    assert made.usage is False


def test_while_tracing_envoy_sends_what_a_trace_is_continued_by() -> None:
    traced = plan(load("tracing: {enabled: true}"), STATE, ())
    assert traced.extra_allowed_headers == ("authorization", "traceparent", "tracestate")


def test_the_plan_follows_the_settings() -> None:
    over = ONE + (
        "failure_mode: closed\nunknown_paths: pass\nextra_paths: [/a, /b/*]\nlimits: {max_body_bytes: 4096}\n"
        "tenants: {key_header: x-api-key, keys: [{env: KEY}]}\nusage: {enabled: true}\n"
        "listeners: {ext_proc: '10.0.0.1:5', control: '10.0.0.1:6', envoy: '0.0.0.0:8080'}"
    )
    made = static_plan(load(over), STATE)
    assert (made.fail_open, made.unknown_paths, made.max_body_bytes) == (False, "pass", 4096)
    assert (made.extra_paths, made.extra_allowed_headers) == (("/a", "/b/*"), ("x-api-key",))
    assert (made.ext_proc, made.control) == ((Tcp("10.0.0.1", 5),), Tcp("10.0.0.1", 6))
    assert made.listener == Tcp("0.0.0.0", 8080)
    assert made.usage is True


def test_a_plan_takes_the_engines_it_is_given() -> None:
    given = (EngineCluster("x", Engine.VLLM, ()),)
    assert plan(load(ONE), STATE, given).engines == given
    assert plan(load(""), STATE, ()).engines == ()


def test_without_pools_there_is_nothing_to_route_to() -> None:
    with pytest.raises(CannotStart, match="names no pools"):
        static_plan(load(""), STATE)


def test_any_number_of_endpoints_a_pool() -> None:
    made = static_plan(settings({"endpoints": ["http://a:1", "http://b:2", ENDPOINT]}), STATE)
    assert made.engines == (
        EngineCluster("a", Engine.VLLM, (Served("a", 1), Served("b", 2), Served("10.0.0.1", 8000))),
    )
    assert made.engines[0].lb_policy == "LEAST_REQUEST"  # equal weights for ever: the load decides


def test_a_static_plan_needs_its_endpoints_in_the_config() -> None:
    moving = settings(
        {"endpoints_file": "a.yaml"},
        {"endpoints": ["http://b:1"]},
        {"endpoints_dns": {"host": "c", "http_port": 1}},
    )
    with pytest.raises(CannotStart, match=r"none in: a, c$"):
        static_plan(moving, STATE)


def test_pools_in_the_order_of_the_config() -> None:
    made = static_plan(load(pools(Engine.VLLM, Engine.TRITON)), STATE)
    assert [(each.name, each.engine) for each in made.engines] == [
        ("vllm", Engine.VLLM),
        ("triton", Engine.TRITON),
    ]


# ── clusters ─────────────────────────────────────────────────────────────────────────────────────


def made(given: Settings, standings: dict[str, tuple[Standing, ...]] | None = None) -> dict[str, EngineCluster]:
    return {each.name: each for each in engines(given, standings or {}, lb_policy="ROUND_ROBIN")}


@pytest.mark.parametrize(
    ("url", "host", "port", "tls", "hostname"),
    [
        ("http://h:8000", "h", 8000, "", ""),
        ("http://h", "h", 80, "", ""),
        ("https://api.h", "api.h", 443, "api.h", "api.h"),
        ("https://api.h:8443", "api.h", 8443, "api.h", "api.h"),
        ("http://[::1]:9", "::1", 9, "", ""),
        ("http://10.0.0.1:9/", "10.0.0.1", 9, "", ""),
    ],
)
def test_a_cluster_of_a_url(url: str, host: str, port: int, tls: str, hostname: str) -> None:
    (found,) = static_plan(settings({"endpoints": [url]}), STATE).engines
    assert (found.name, found.engine, found.http2) == ("a", Engine.VLLM, False)
    assert found.endpoints == (Served(host, port, hostname=hostname),)
    assert found.tls_name == tls


TRITON: dict[str, Any] = {"engine": "triton"}
BOTH = {**TRITON, "endpoints": [ENDPOINT | {"grpc_port": 8001}, ENDPOINT | {"http_port": 9000}]}


def test_a_triton_pool_is_two_clusters_with_the_same_weights_and_health() -> None:
    first, second = Endpoint("10.0.0.1", 8000, 8001), Endpoint("10.0.0.2", 8000, 9001)
    found = made(settings(BOTH), {"a": (Standing(first, 700), Standing(second, 300, draining=True))})
    assert found["a"].endpoints == (Served("10.0.0.1", 8000, 700), Served("10.0.0.2", 8000, 300, True))
    assert found["a-grpc"].endpoints == (Served("10.0.0.1", 8001, 700), Served("10.0.0.2", 9001, 300, True))
    assert (found["a"].http2, found["a-grpc"].http2) == (False, True)
    assert {each.engine for each in found.values()} == {Engine.TRITON}


def test_an_endpoint_without_grpc_is_in_one_of_them() -> None:
    found = {each.name: each for each in static_plan(settings(BOTH), STATE).engines}
    assert [each.port for each in found["a"].endpoints] == [8000, 9000]
    assert [each.port for each in found["a-grpc"].endpoints] == [8001]


def test_all_http_clusters_come_before_grpc_ones() -> None:
    """The first of a plan takes what no family claims, and that is no gRPC."""
    order = [
        each.name
        for each in engines(settings(BOTH, {**BOTH}, {"endpoints": ["http://c:1"]}), {}, lb_policy="ROUND_ROBIN")
    ]
    assert order == ["a", "b", "c", "a-grpc", "b-grpc"]


@pytest.mark.parametrize(
    ("pool", "expected"),
    [
        ({"endpoints": ["http://h:1"]}, False),
        ({"endpoints_file": "f"}, False),
        (TRITON | {"endpoints": ["http://h:1"]}, False),
        (BOTH, True),
        (TRITON | {"endpoints_file": "f"}, True),
        (TRITON | {"endpoints_dns": {"host": "h", "http_port": 1}}, False),
        (TRITON | {"endpoints_dns": {"host": "h", "http_port": 1, "grpc_port": 2}}, True),
    ],
)
def test_whether_a_pool_has_grpc_is_the_configs_to_say(pool: dict[str, Any], expected: bool) -> None:
    given = settings(pool)
    assert has_grpc(given.pools[0]) is expected
    somebody = {"a": (Standing(Endpoint("h", 1, 2)),)}
    assert ("a-grpc" in made(given)) is expected
    assert ("a-grpc" in made(given, somebody)) is expected


def test_a_pool_without_endpoints_keeps_its_clusters() -> None:
    assert [each.endpoints for each in made(settings(BOTH)).values()] == [(), ()]


def test_limits_and_policy_of_both_clusters() -> None:
    given = settings(BOTH | {"limits": {"max_concurrency": 8, "max_requests": 99}}, {"endpoints": ["http://h:1"]})
    found = made(given)
    assert [found[name].max_requests for name in ("a", "a-grpc", "b")] == [99, 99, 4096]
    assert {each.lb_policy for each in found.values()} == {"ROUND_ROBIN"}


def test_the_name_an_address_was_found_by_is_its_host_over_tls() -> None:
    given = settings({"endpoints": ["https://api.h"]})
    found = made(given, {"a": (Standing(Endpoint("10.0.0.9", 443, tls=True, hostname="api.h")),)})["a"]
    assert found.endpoints == (Served("10.0.0.9", 443, hostname="api.h"),)
    assert found.tls_name == "api.h"
    assert found.rewrites_host


def test_without_tls_the_clients_host_is_kept() -> None:
    found = made(settings({"endpoints_file": "f"}), {"a": (Standing(Endpoint("10.0.0.9", 80, hostname="h")),)})["a"]
    assert not found.rewrites_host
    assert found.tls_name == ""

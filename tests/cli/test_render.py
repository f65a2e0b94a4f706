"""From settings to the plan of an Envoy config."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from extproc.cli.envoy_config import Pipe, Tcp
from extproc.cli.main import main
from extproc.cli.render import address, plan, rendered, tcp
from extproc.errors import CannotStart
from extproc.model.names import Engine
from extproc.settings import Settings, load
from tests.decide.worlds import pools

STATE = Path("/run/x")
ONE = pools(Engine.VLLM)


def settings(over: str) -> Settings:
    return load(over)


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


def test_the_plan_of_the_defaults() -> None:
    made = plan(settings(ONE), STATE)
    assert [engine.name for engine in made.engines] == ["vllm"]
    assert made.ext_proc == Pipe("/run/x/extproc.sock")
    assert made.admin == Pipe("/run/x/envoy-admin.sock")
    assert made.listener == Tcp("127.0.0.1", 10000)
    assert (made.fail_open, made.unknown_paths, made.max_body_bytes) == (True, "reject", 16 << 20)
    assert (made.extra_paths, made.extra_allowed_headers) == ((), ("authorization",))


def test_the_plan_follows_the_settings() -> None:
    over = ONE + (
        "failure_mode: closed\nunknown_paths: pass\nextra_paths: [/a, /b/*]\nlimits: {max_body_bytes: 4096}\n"
        "tenants: {key_header: x-api-key, keys: [{env: KEY}]}\nlisteners: {ext_proc: '10.0.0.1:5', envoy: '0.0.0.0:8080'}"
    )
    made = plan(settings(over), STATE)
    assert (made.fail_open, made.unknown_paths, made.max_body_bytes) == (False, "pass", 4096)
    assert (made.extra_paths, made.extra_allowed_headers) == (("/a", "/b/*"), ("x-api-key",))
    assert (made.ext_proc, made.listener) == (Tcp("10.0.0.1", 5), Tcp("0.0.0.0", 8080))


def test_without_pools_there_is_nothing_to_route_to() -> None:
    with pytest.raises(CannotStart, match="names no pools"):
        plan(settings(""), STATE)


def test_one_endpoint_a_pool() -> None:
    many = [{"name": n, "engine": "vllm", "endpoints": ["http://a:1", "http://b:1"]} for n in ("p", "q")]
    with pytest.raises(CannotStart, match="too many in: p, q"):
        plan(settings(yaml.safe_dump({"pools": many})), STATE)


def test_rendered_is_json_that_names_the_pool() -> None:
    config = json.loads(rendered(settings(ONE), STATE))
    names = [cluster["name"] for cluster in config["static_resources"]["clusters"]]
    assert "vllm" in names
    assert "engine-1" not in names


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(ONE)
    assert main(["envoy-config", "--config", str(file), "--state-dir", "/run/y"]) == 0
    out, err = capsys.readouterr()
    assert "/run/y/extproc.sock" in out
    assert json.loads(out)["admin"]["address"] == {"pipe": {"path": "/run/y/envoy-admin.sock"}}
    assert err == ""


def test_the_command_without_pools(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envoy-config"]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", "extproc: the config names no pools, so there is nothing to route to\n")


def test_two_pools_of_one_name_are_told_by_the_config() -> None:
    assert plan(settings(pools(Engine.VLLM, Engine.TRITON)), STATE).engines[1].engine is Engine.TRITON

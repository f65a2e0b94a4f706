"""`extproc up`: engines as pools, and what is printed."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from extproc.app import Listening
from extproc.cli.engines import standin_engines
from extproc.cli.main import main
from extproc.cli.up import EXAMPLES, banner, curl, where, with_engines
from extproc.model.names import Engine, Tier
from extproc.model.topology import Endpoint
from extproc.pools import Pool
from extproc.settings import Settings, load
from extproc.standin import metrics_page
from tests.decide.worlds import decided, pools

SHIPPED = load("")
NOTHING = argparse.Namespace(admin_port=None, port=None)
LISTENING = Listening("unix:/s", "unix:/c", "127.0.0.1:9902", None, Path("/x/audit.jsonl"))


def served(*engines: Engine) -> Settings:
    return load(pools(*engines))


def test_engines_of_the_command_line_become_pools() -> None:
    found = with_engines(served(Engine.TRITON), NOTHING, [("http://h:1", Engine.VLLM)], False)
    assert [(p.name, p.engine, p.endpoints, p.schedules_by_priority) for p in found.pools] == [
        ("engine-1", Engine.VLLM, ["http://h:1"], None)
    ]


def test_without_engines_the_configured_pools_stay() -> None:
    assert with_engines(served(Engine.TRITON), NOTHING, [], False) == served(Engine.TRITON)


def test_the_standin_shows_its_priority() -> None:
    found = with_engines(SHIPPED, NOTHING, standin_engines("http://h:1"), True)
    assert [pool.schedules_by_priority for pool in found.pools] == [True, True, None]


def test_the_standin_tells_of_all_engines_on_one_page() -> None:
    found = with_engines(SHIPPED, NOTHING, standin_engines("http://h:1"), True)
    assert {pool.listed() for pool in found.pools} == {
        (Endpoint("h", 1, metrics_url=f"http://h:1{metrics_page.PATH}"),)
    }


def test_ports_of_the_command_line() -> None:
    found = with_engines(SHIPPED, argparse.Namespace(admin_port=1, port=2), [], False)
    assert (found.listeners.admin, found.listeners.envoy) == ("127.0.0.1:1", "127.0.0.1:2")


def test_banner() -> None:
    lines = banner(served(Engine.VLLM, Engine.LLAMACPP), LISTENING, standin=False).splitlines()
    assert lines[:5] == [
        "Envoy     http://127.0.0.1:10000",
        "vllm      http://127.0.0.1:8000 (vllm)",
        "llamacpp  http://127.0.0.1:8000 (llamacpp)",
        "admin     http://127.0.0.1:9902/",
        "audit     /x/audit.jsonl",
    ]
    assert [line.split()[0] for line in lines[6:9]] == ["curl"] * 3
    assert lines[-1] == "Ctrl-C ends all of it."
    assert "stand-in engine:" in banner(served(Engine.VLLM), LISTENING, standin=True).splitlines()


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ({"endpoints": ["http://h:1"]}, "http://h:1"),
        ({"endpoints": ["https://h"]}, "https://h:443"),
        ({"endpoints": ["http://h:1", {"address": "10.0.0.1", "http_port": 2}]}, "http://h:1 and 1 more"),
        ({"endpoints_file": "chat.yaml"}, "chat.yaml"),
        ({"endpoints_dns": {"host": "vllm.internal", "http_port": 8000}}, "vllm.internal:8000"),
    ],
)
def test_where_a_pool_is(source: dict[str, Any], shown: str) -> None:
    assert where(Pool.model_validate({"name": "p", "engine": "vllm"} | source)) == shown


@pytest.mark.parametrize("engine", Engine)
@pytest.mark.parametrize(("tier", "text"), EXAMPLES)
def test_the_curl_lines_are_shell_and_carry_their_text(engine: Engine, tier: str, text: str) -> None:
    words = shlex.split(curl("http://127.0.0.1:10000", served(engine), text))
    assert words[:2] == ["curl", "-s"]
    body = json.loads(words[words.index("-d") + 1])
    path = words[2].removeprefix("http://127.0.0.1:10000")
    if engine is Engine.TRITON:
        assert (path, body) == ("/v2/models/MODEL/generate", {"text_input": text})
    else:
        assert path == "/v1/chat/completions"
        assert body["messages"] == [{"role": "user", "content": text}]
    found = decided(body, path)
    assert found.decision.tier is Tier(tier)


@pytest.mark.parametrize("argv", [["--engine", "http://h:1"], ["--engine", "http://h:1=tgi"], ["--port", "x"]])
def test_wrong_use(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["up", *argv])
    assert end.value.code == 2
    assert "usage: extproc" in capsys.readouterr().err

"""`extproc up`: engines as pools, and what is printed."""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import sys
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any, cast

import pytest

from extproc.app import Listening, Sidecar
from extproc.cli import processes, up
from extproc.cli.engines import standin_engines
from extproc.cli.main import main
from extproc.cli.up import EXAMPLES, banner, curl, where, with_engines
from extproc.errors import CannotStart
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


# ── what runs besides ────────────────────────────────────────────────────────────────────────────


def child(code: str) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
    return processes.child("it", sys.executable, "-c", code)


FOR_EVER = "import signal; signal.pause()"


async def test_it_goes_on_until_it_is_asked_to_stop() -> None:
    stop = asyncio.Event()
    async with child(FOR_EVER) as envoy, child(FOR_EVER) as others:
        going = asyncio.Task(up._until(stop, {"Envoy": envoy, "the others": others}, {}))
        await asyncio.sleep(0.01)
        assert not going.done()
        stop.set()
        assert await going == 0


@pytest.mark.parametrize("name", ["Envoy", "the others"])
async def test_or_until_one_of_them_ends(name: str) -> None:
    async with child("raise SystemExit(3)") as ends, child(FOR_EVER) as goes_on:
        running = {"one": goes_on, name: ends}
        with pytest.raises(CannotStart, match=f"{name} ended with code 3"):
            await up._until(asyncio.Event(), running, {})


async def test_one_that_only_watches_is_not_missed(caplog: pytest.LogCaptureFixture) -> None:
    stop = asyncio.Event()
    async with child("raise SystemExit(3)") as ends, child(FOR_EVER) as goes_on:
        going = asyncio.Task(up._until(stop, {"Envoy": goes_on}, {"Prometheus": ends}))
        await ends.wait()
        await asyncio.sleep(0.05)
        assert not going.done()
        assert "Prometheus ended with code 3" in caplog.text
        stop.set()
        assert await going == 0


class Ready:
    """A sidecar whose workers are there after so many seconds."""

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s

    async def served(self) -> None:
        await asyncio.sleep(self._after_s)


async def workers(tmp_path: Path, sidecar: Ready, code: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Who runs then, where `extproc workers` is this code."""
    monkeypatch.setattr(up, "PROGRAM", (sys.executable, "-c", code))
    async with AsyncExitStack() as stack:
        settings = load("workers: 2")
        return [*await up._workers(stack, cast(Sidecar, sidecar), settings, tmp_path, "error")]


async def test_workers_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await workers(tmp_path, Ready(0.01), FOR_EVER, monkeypatch) == ["the process of the workers"]


async def test_workers_that_cannot_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CannotStart, match="the workers ended with code 7"):
        await workers(tmp_path, Ready(3600), "raise SystemExit(7)", monkeypatch)


async def test_workers_that_never_take_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "READY_S", 0.05)
    with pytest.raises(CannotStart, match=r"no worker was ready within 0\.05 s"):
        await workers(tmp_path, Ready(3600), FOR_EVER, monkeypatch)


async def test_what_the_workers_are_started_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parse = (
        "import os, sys; from extproc.cli import main as m; a = m._parser().parse_args(sys.argv[1:]); "
        "sys.exit(0 if (a.count, a.parent, a.log_level) == (2, os.getppid(), 'error') else 5)"
    )
    with pytest.raises(CannotStart, match="the workers ended with code 0"):
        await workers(tmp_path, Ready(3600), parse, monkeypatch)

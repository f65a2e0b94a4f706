"""`extproc status`, `params` and `baseline` against a running sidecar."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from extproc.app import Sidecar
from extproc.cli.main import main
from extproc.config_source import ConfigSource

CONFIG = """
listeners: {admin: "127.0.0.1:0"}
pools:
  - {name: big, engine: vllm, endpoints: ["http://127.0.0.1:9"]}
  - {name: light, engine: llamacpp, endpoints: ["http://127.0.0.1:9"], role: light}
"""


class World:
    def __init__(self, sidecar: Sidecar, admin: str, folder: Path, config: Path) -> None:
        self.sidecar, self.admin, self.folder, self.config = sidecar, admin, folder, config

    async def run(self, *words: str) -> int:
        where = ["--admin", self.admin] if words[-1] in ("list", "status", "--json") else []
        if not where:
            where = ["--state-dir", str(self.folder)]
        return await asyncio.to_thread(main, [*words, *where])


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    config = tmp_path / "extproc.yaml"
    config.write_text(CONFIG)
    folder = tmp_path / "state"
    folder.mkdir()
    sidecar = Sidecar(ConfigSource(config), folder)
    async with sidecar as listening:
        yield World(sidecar, listening.admin, folder, config)


async def test_a_table_and_json(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert await world.run("status") == 0
    shown = capsys.readouterr().out
    for word in ("pool/big", "fallback/big", "pool/light", "parameters", "closed", "default@", "as configured"):
        assert word in shown
    assert await world.run("status", "--json") == 0
    page = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in page["pools"]] == ["big", "light"]
    assert {each["state"] for each in page["breakers"]} == {"closed"}
    assert page["drift"] == [] and page["panic"] is None and page["enabled"]
    assert page["parameters"]["active"].startswith("default@")


async def test_parameter_sets_are_listed_pinned_and_activated(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    first = json.loads((world.folder / "parameters.json").read_text())["active"]
    assert await world.run("params", "pin") == 0
    world.config.write_text(CONFIG + "inference_params: {temperature: {normal: 0.5}}\n")
    await until(lambda: len(json.loads((world.folder / "parameters.json").read_text())["versions"]) == 2)
    assert json.loads((world.folder / "parameters.json").read_text())["active"] == first
    assert await world.run("params", "unpin") == 0
    await until(lambda: json.loads((world.folder / "parameters.json").read_text())["active"] != first)
    capsys.readouterr()
    assert await world.run("params", "activate", first[:6]) == 0
    assert capsys.readouterr().out == f"active: default@{first}\n"
    assert await world.run("params", "list") == 0
    listed = capsys.readouterr().out
    assert "activated" in listed and "pinned" in listed and first in listed
    assert await world.run("status", "--json") == 0
    page = json.loads(capsys.readouterr().out)
    told = [each["state"] for each in reversed(page["incidents"])]
    assert next(each for each in told if each in ("pinned", "unpinned", "activated")) == "pinned"
    assert told.count("unpinned") == 1 and told[-1] == "activated"


async def until(found: object) -> None:
    async with asyncio.timeout(10):
        while not found():  # type: ignore[operator]
            await asyncio.sleep(0.05)


async def test_what_cannot_be_done_is_one_line(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert await world.run("params", "activate", "zzz") == 1
    assert "no parameter set, or several, of version 'zzz'" in capsys.readouterr().err
    assert await world.run("baseline", "freeze") == 1
    assert "nothing to freeze" in capsys.readouterr().err


async def test_nobody_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert await asyncio.to_thread(main, ["params", "pin", "--state-dir", str(tmp_path)]) == 1
    assert await asyncio.to_thread(main, ["status", "--admin", "127.0.0.1:9"]) == 1
    told = capsys.readouterr().err
    assert told.count("no sidecar answers") == 2 and "Traceback" not in told


async def test_metrics_tell_the_same(world: World) -> None:
    body, _ = world.sidecar._metrics.exposition()
    text = body.decode()
    assert 'llm_breaker_state{breaker="pool/big",state="closed"} 1.0' in text
    assert 'llm_breaker_state{breaker="pool/big",state="open"} 0.0' in text
    for name in ("llm_slo_broken_endpoints", "llm_parameters_pinned", "llm_breaker_panic", "llm_pool_degraded"):
        assert f"\n{name}" in text

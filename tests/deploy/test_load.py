"""The load generator of the stack: every path and prompt, at its rate, whatever the answers are."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from tests.e2e.running import Engine
from tests.ports import free_port

FILE = Path(__file__).resolve().parents[2] / "deploy/compose/load.py"


@pytest.fixture(scope="module")
def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("load", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_asks_every_path_with_every_prompt(load: ModuleType, tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    asking = asyncio.create_task(load.run(engine.url, 100.0))
    try:
        async with asyncio.timeout(20):
            while len(reports := await asyncio.to_thread(engine.received)) < len(load.PATHS) * len(load.PROMPTS):
                await asyncio.sleep(0.05)
    finally:
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking
        engine.stop()

    assert {report["path"] for report in reports} == set(load.PATHS)
    asked = {(report["path"], report["body_sha256"]) for report in reports}
    assert len(asked) == len(set(load.PATHS)) * len(load.PROMPTS)


async def test_goes_on_while_nobody_answers(load: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    load.SAY_S = 0.2
    asking = asyncio.create_task(load.run(f"http://127.0.0.1:{free_port()}", 50.0))
    printed = ""
    async with asyncio.timeout(20):
        while "ClientConnectorError=" not in printed:
            await asyncio.sleep(0.05)
            printed += capsys.readouterr().out
    assert not asking.done()
    asking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asking

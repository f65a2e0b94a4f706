"""A fix of the parameters comes while answers are slow: it is judged by what it does itself."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.asking import CHAT, ask, chat
from tests.e2e.faulty import FaultyEngine, Guarded, ask_many, engine, steady
from tests.e2e.running import until

BREACH_S = 4

TIMES = {
    "weights": {"window_s": 12},
    "protection": {
        "slo": {"p99_ms": 400},
        "rollback": {"breach_s": BREACH_S, "window_s": 30},
        "breakers": {"pool": {"trip": []}, "parameters": {"trip": []}, "fallback": {"trip": []}},
    },
}


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[FaultyEngine]:
    running = engine(tmp_path / "big")
    yield running
    running.stop()


def temperature(normal: float) -> dict[str, object]:
    return {"inference_params": {"temperature": {"normal": normal}}}


def active(world: Guarded) -> str:
    return str(world.status()["parameters"]["active"])


def freeze(world: Guarded) -> None:
    words = ("baseline", "freeze", "--state-dir", str(world.state_dir))
    subprocess.run([sys.executable, "-m", "extproc", *words], capture_output=True, timeout=30, check=True)


def breached_s(world: Guarded) -> float:
    return float(world.status()["slo"]["breached_s"])


def test_a_fix_that_comes_into_a_breach_stays_and_one_that_is_none_goes(slow: FaultyEngine) -> None:
    pools = [{"name": "big", "engine": "vllm", "endpoints": [slow.url]}]
    with Guarded(pools, **TIMES) as world:
        ask_many(world.port, 60)
        good = active(world)
        until(lambda: world.sidecar.count("llm_request_outcomes_total", outcome="ok") >= 60, what="log")
        freeze(world)
        world.reload(**temperature(0.75))
        assert active(world) != good
        slow.fail(delay_ms=600)
        with steady(lambda: str(ask(world.port, CHAT, chat("x")).status), clients=8):
            until(lambda: breached_s(world) > BREACH_S / 2, within_s=30, what="a breach")
            slow.heal()
            world.reload(**temperature(0.8))
            fix = active(world)
            time.sleep(BREACH_S + 3)
            assert active(world) == fix, "what the set before did is not its fault"
            assert breached_s(world) == 0 and world.status()["slo"]["broken"]

            slow.fail(delay_ms=600)
            until(lambda: active(world) == good, within_s=60, what="rolled back for its own requests")
        (record,) = [each for each in world.status()["parameters"]["records"] if each["action"] == "rolled_back"]
        assert record["before"] in fix and record["evidence"]["breached_s"] > BREACH_S

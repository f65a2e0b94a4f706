"""Two real tritonservers: a new parameter set, slower answers, and what the sidecar makes of it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.asking import ask
from tests.e2e.faulty import Guarded, steady
from tests.e2e.running import until
from tests.e2e.test_weights_real_triton import endpoint
from tests.engines_real.fixtures import DELAY_MS, Tritons

PATH = "/v2/models/text/generate"
PERIOD_S = 0.16
CLIENTS = 8
"""Fifty requests a second."""

BUSY_MS = 40.0
"""Added by a machine that has more to do than this."""

SLOW_MS = 1000.0
"""Beyond the promise below, which a busy machine keeps."""

TIMES = {
    "drift": {"interval_s": 1, "window_s": 20},
    "weights": {"window_s": 10},
    "protection": {
        "slo": {"p99_ms": 800},
        "rollback": {"breach_s": 4, "window_s": 20},
        # What is slow here is to be rolled back, not shut.
        "breakers": {"pool": {"trip": []}, "parameters": {"trip": []}, "fallback": {"trip": []}},
    },
}


@pytest.fixture
def world(tritons: Tritons) -> Iterator[Guarded]:
    pool = {"name": "text", "engine": "triton", "endpoints": [endpoint(server) for server in tritons]}
    with Guarded([pool], **json.loads(json.dumps(TIMES))) as running:
        yield running


def send(world: Guarded, took_s: list[float]) -> str:
    begun = time.monotonic()
    answer = ask(world.port, PATH, {"text_input": "How are you?", "parameters": {"max_tokens": 4}})
    took_s.append(time.monotonic() - begun)
    time.sleep(max(0.0, PERIOD_S - took_s[-1]))
    return str(answer.status)


def command(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "extproc", *words], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def active(world: Guarded) -> str:
    return str(world.status()["parameters"]["active"])


def drift(world: Guarded) -> dict[str, Any]:
    label = active(world)
    found = [each for each in world.status()["drift"] if each["parameter_set"] == label]
    return dict(found[0]) if found else {"state": "none"}


def await_drift(world: Guarded, state: str) -> dict[str, Any]:
    """The verdict once it is that."""
    last: dict[str, Any] = {}

    def looked() -> bool:
        last.clear()
        last.update(drift(world))
        return last["state"] == state

    try:
        until(looked, within_s=60, what=state)
    except AssertionError:
        pytest.fail(f"not {state} within a minute: {last}")
    return last


def both(tritons: Tritons, delay_ms: float) -> None:
    for server in tritons:
        server.set_delay(delay_ms)


def test_a_set_that_makes_answers_slow_is_taken_back_and_stays_away(world: Guarded, tritons: Tritons) -> None:
    took_s: list[float] = []
    with steady(lambda: send(world, took_s), clients=CLIENTS) as came:
        assert until(lambda: drift(world)["state"], what="a first look") in ("none", "unknown")
        until(lambda: came["200"] > 300, within_s=60, what="traffic")
        assert drift(world)["reason"] == "no_baseline"
        good = active(world)
        assert good in command("baseline", "freeze", "--state-dir", str(world.state_dir))
        await_drift(world, "fine")

        world.reload(inference_params={"temperature": {"normal": 0.75}})
        bad = active(world)
        assert bad != good
        assert await_drift(world, "fine")["baseline_set"] == good, "compared with the old set"

        # On a busy machine the baseline's own P95 is high: it is to rise by 120 ms there too.
        noise_ms = 1000 * sorted(took_s)[int(0.95 * len(took_s))] - DELAY_MS
        both(tritons, DELAY_MS + 120 + (noise_ms if noise_ms > BUSY_MS else 0.0))
        found = await_drift(world, "drift")
        assert found["p95_delta_s"] >= 0.085 and found["d"] > 0.12 and found["p"] < 0.01
        time.sleep(TIMES["protection"]["rollback"]["breach_s"] + 3)  # type: ignore[index]
        assert active(world) == bad, "slower, but within the promise: a warning and no more"
        both(tritons, DELAY_MS)
        await_drift(world, "fine")
        assert active(world) == bad

        both(tritons, SLOW_MS)
        until(lambda: active(world) == good, within_s=60, what="rolled back")
        both(tritons, DELAY_MS)
    assert set(came) == {"200"}, came

    (record,) = [each for each in world.status()["parameters"]["records"] if each["action"] == "rolled_back"]
    assert record["reason"] == "slo_breached" and record["by"] == "protection"
    assert record["evidence"]["breached_s"] >= 4 and record["evidence"]["affected_share"] > 0.3
    assert record["evidence"]["worst_p99_s"] > 0.8
    assert f"{record['before']}" in bad and f"{record['version']}" in good
    listed = command("params", "list", "--admin", f"127.0.0.1:{world.sidecar.admin_port}")
    assert "rolled back" in listed and "refused" in listed

    # The file still names the bad set: neither a reload nor a restart brings it back.
    changes = {"inference_params": {"temperature": {"normal": 0.75}}}
    world.reload(**changes, default_model={"context_window": 9000})
    assert active(world) == good
    world.sidecar.stop()
    world.sidecar.start()
    assert active(world) == good
    assert ask(world.port, PATH, {"text_input": "Hello", "parameters": {"max_tokens": 4}}).status == 200
    # An operator's word does.
    version = bad.partition("@")[2]
    command("params", "activate", version[:6], "--state-dir", str(world.state_dir))
    until(lambda: active(world) == bad, what="activated by hand")
    until(lambda: json.loads(world.sidecar.admin("/snapshot"))["parameter_set"] == bad, what="in force")

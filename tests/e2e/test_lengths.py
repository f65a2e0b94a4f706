"""Output lengths move from where they start to what answers need, through the real Envoy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.e2e.asking import ask, chat
from tests.e2e.faulty import FaultyEngine, Guarded, engine
from tests.e2e.running import RULES, until

CHAT = "/v1/chat/completions"
LENGTHS = [int(each) for each in np.random.default_rng(6).lognormal(5.6, 0.35, 499)]


@pytest.fixture(params=[1, 2], ids=["alone", "two workers"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Guarded, FaultyEngine]]:
    running = engine(tmp_path / "engine")
    pool = {"name": "big", "engine": "vllm", "endpoints": [running.url]}
    given = {"usage": {"enabled": True}, "telemetry": {"interval_s": 0.2, "timeout_s": 0.1}}
    try:
        with Guarded([pool], classify={"rules": RULES}, workers=request.param, **given) as found:
            yield found, running
    finally:
        running.stop()


def test_a_scenarios_length_follows_its_answers(world: tuple[Guarded, FaultyEngine]) -> None:
    guarded, running = world
    running.fail(lengths=LENGTHS)
    text = "Where is my order 12345678?"

    def granted() -> int:
        return int(ask(guarded.port, CHAT, chat(text)).params["max_tokens"])

    assert granted() == 120
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: ask(guarded.port, CHAT, chat(text)).status, range(1990)))
    expected = 1.2 * float(np.quantile(LENGTHS, 0.95))
    found = until(
        lambda: now if abs((now := granted()) - expected) <= 0.15 * expected else 0, within_s=20, what="the P95"
    )
    status = json.loads(guarded.sidecar.admin("/status"))["lengths"]["order_query"]
    assert status["samples"] >= 1900 and status["tokens"] == pytest.approx(found, rel=0.06)
    assert guarded.sidecar.count("llm_scenario_length_samples", scenario="order_query") >= 1900
    # Other scenarios keep theirs, and a restart loses nothing.
    assert ask(guarded.port, CHAT, chat("hello")).params["max_tokens"] == 256
    guarded.sidecar.stop()
    guarded.sidecar.start()
    until(lambda: abs(granted() - expected) <= 0.15 * expected, what="after a restart")

"""Requests nobody labelled and no rule knows, through the real Envoy: the intent model tells the tier."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from extproc.request.classify.weights import encode
from tests.e2e.asking import ask, chat
from tests.e2e.faulty import FaultyEngine, Guarded, engine
from tests.e2e.running import until, write_config
from tests.request.classify.models import small

CHAT = "/v1/chat/completions"
UNLABELLED = [
    ("My parcel still has not shown up, when will the courier bring it?", "strict", "order_query", 0.3),
    ("How far is the moon from the earth?", "normal", "general", 0.7),
    ("Make up a bedtime story with a brave snail", "creative", "copywriting", 0.9),
    ("我的快递三天了还没送到", "strict", "order_query", 0.3),
    ("明天天气怎么样", "normal", "general", 0.7),
    ("写一首关于雨夜的诗", "creative", "copywriting", 0.9),
]


@pytest.fixture(params=[1, 2], ids=["alone", "two workers"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Guarded, FaultyEngine]]:
    running = engine(tmp_path / "engine")
    pool = {"name": "big", "engine": "vllm", "endpoints": [running.url]}
    keeping = {"enabled": True, "keep_unsure": True, "model": ""}
    try:
        with Guarded([pool], workers=request.param, classify={"rules": []}, intent=keeping) as found:
            yield found, running
    finally:
        running.stop()


def test_three_tiers_without_labels_or_rules(world: tuple[Guarded, FaultyEngine]) -> None:
    guarded, _ = world
    for text, tier, scenario, temperature in UNLABELLED:
        answer = ask(guarded.port, CHAT, chat(text))
        assert (answer.decided("tier"), answer.decided("scenario")) == (tier, scenario), text
        assert answer.params["temperature"] == temperature
        report = explained(guarded, text)
        assert (report["tier"], report["scenario"], report["source"]) == (tier, scenario, "intent")
        assert report["confidence"] >= report["needed"] == 0.8
        assert report["default"] == "normal (general)"
    unsure = "refund poem weather order story"
    answer = ask(guarded.port, CHAT, chat(unsure))
    report = explained(guarded, unsure)
    assert (answer.decided("tier"), report["rule"]) == ("normal", "low_confidence")
    assert report["heard"][0]["confidence"] < 0.8
    sidecar = guarded.sidecar
    until(lambda: sidecar.count("llm_classified_total", source="intent", result="told") == len(UNLABELLED))
    assert sidecar.count("llm_classified_total", source="intent", result="low_confidence") == 1
    kept = until(lambda: b"".join(path.read_bytes() for path in guarded.state_dir.glob("unsure.*.jsonl")))
    assert unsure.encode() in kept and b"parcel" not in kept


def explained(guarded: Guarded, text: str) -> dict[str, object]:
    command = [sys.executable, "-m", "extproc", "explain", "--config", str(guarded.config), "--json"]
    done = subprocess.run(
        command, input=json.dumps(chat(text)).encode(), capture_output=True, timeout=30, check=True
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_a_model_is_changed_while_it_serves(world: tuple[Guarded, FaultyEngine], tmp_path: Path) -> None:
    guarded, _ = world
    own = tmp_path / "own.npz"
    own.write_bytes(encode(small()))
    changes = {"intent": {"model": str(own)}, "classify": {"rules": [], "min_confidence": 0.1}}
    write_config(guarded.config, guarded.tree | changes)
    until(lambda: ask(guarded.port, CHAT, chat("a poem of rain")).decided("scenario") == "copywriting")
    bad = guarded.sidecar.count("llm_config_reloads_total", result="invalid")
    own.write_bytes(b"half a mod")
    until(lambda: guarded.sidecar.count("llm_config_reloads_total", result="invalid") > bad, what="refused")
    assert ask(guarded.port, CHAT, chat("a poem of rain")).decided("scenario") == "copywriting", "the old one stays"

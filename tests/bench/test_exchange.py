"""The sidecar alone at a fixed rate: a native client in Envoy's place, a real sidecar."""

from __future__ import annotations

import json

import pytest

from bench.exchange import main

pytestmark = pytest.mark.envoy


def test_both_variants_answer_each_stream(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rate", "200", "--seconds", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["variant"] for each in found] == ["no-op, native", "ours, fast"]
    assert all(each["requests"] == 200 and 0 < each["p50_ms"] <= each["p99_ms"] for each in found)

"""The table of the intent model's times: every length, both languages, what is asked of them."""

from __future__ import annotations

import json

import pytest

from bench.intent import LENGTHS, main, met, pieces


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--texts", "5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row["language"], row["chars"]) for row in found] == [(x, n) for x in ("en", "zh") for n in LENGTHS]
    assert all(0 < row["p50_us"] <= row["p99_us"] for row in found)
    assert main(["--texts", "5"]) == 0
    assert "target" in capsys.readouterr().out


def test_pieces_have_their_length_and_their_seed() -> None:
    found = pieces("abc def ", 20, 3, seed=1)
    assert [len(each) for each in found] == [20] * 3 and found == pieces("abc def ", 20, 3, seed=1)


def test_what_is_asked() -> None:
    assert met({"chars": 200, "p50_us": 59.0, "p99_us": 1.0}) == "p50 <= 60 met"
    assert met({"chars": 20_000, "p50_us": 1.0, "p99_us": 1001.0}) == "p99 <= 1,000 MISSED"
    assert met({"chars": 20, "p50_us": 1.0, "p99_us": 1.0}) == "–"

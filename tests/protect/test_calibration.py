"""Bytes per token, out of what engines charge."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from extproc.protect.calibration import MAX_MODELS, calibrated


def test_the_first_one_is_believed_and_later_ones_move_it_slowly() -> None:
    known = calibrated({}, "m", 4000, 1000)
    assert known == {"m": 4.0}
    assert calibrated(known, "m", 4000, 2000) == {"m": pytest.approx(3.9)}


@pytest.mark.parametrize(
    ("size", "tokens"), [(2047, 500), (4000, None), (4000, 0), (4000, -1), (9000, 1), (4000, 9000)]
)
def test_what_tells_nothing_changes_nothing(size: int, tokens: int | None) -> None:
    known: Mapping[str, float] = {"m": 4.0}
    assert calibrated(known, "m", size, tokens) is known


def test_models_are_bounded() -> None:
    known: Mapping[str, float] = {}
    for number in range(MAX_MODELS + 50):
        known = calibrated(known, f"m{number}", 4000, 1000)
    assert len(known) == MAX_MODELS
    assert calibrated(known, "m0", 4000, 800)["m0"] > 4.0, "those that are known go on"


def test_it_arrives_at_what_is_true() -> None:
    known: Mapping[str, float] = {"m": 10.0}
    for _ in range(200):
        known = calibrated(known, "m", 3000, 1000)
    assert known["m"] == pytest.approx(3.0, abs=0.01)

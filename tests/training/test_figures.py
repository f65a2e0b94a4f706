"""Figures of verdicts, and how sure one may be of them."""

from __future__ import annotations

import numpy as np
import pytest

from extproc.training.calibrate import temperature
from extproc.training.figures import calibration_error, figures, macro_f1, reliability
from extproc.training.report import how_sure, interval

NAMES = ("strict", "normal", "creative")


def test_of_tiers() -> None:
    truth, told = np.array([0, 0, 1, 1, 2]), np.array([0, 1, 1, 1, 0])
    found = figures(truth, told, NAMES, confidence=np.array([0.9, 0.7, 0.9, 0.9, 0.5]))
    assert found.accuracy == 0.6 and found.coverage == 0.6
    assert found.confusion == ((1, 1, 0), (0, 2, 0), (1, 0, 0))
    strict, creative = found.of("strict"), found.of("creative")
    assert (strict.recall, strict.precision) == (0.5, 0.5)
    assert (creative.recall, creative.precision) == (0.0, None)


def test_calibration_error() -> None:
    right = np.array([True] * 90 + [False] * 10)
    assert calibration_error(reliability(np.full(100, 0.9), right)) == pytest.approx(0.0)
    assert calibration_error(reliability(np.full(100, 0.7), right)) == pytest.approx(0.2)
    assert calibration_error([]) == 0.0


def test_macro_f1() -> None:
    score, each = macro_f1(["a", "a", "b"], ["a", "b", "b"])
    assert each == {"a": pytest.approx(2 / 3), "b": pytest.approx(2 / 3)} and score == pytest.approx(2 / 3)


@pytest.mark.parametrize("hot", [0.5, 1.0, 2.0])
def test_the_temperature_is_found(hot: float) -> None:
    random = np.random.default_rng(1)
    logits = random.standard_normal((20_000, 3)) * 2
    odds = np.exp(logits)
    odds /= odds.sum(axis=1, keepdims=True)
    truth = (odds.cumsum(axis=1) < random.random((20_000, 1))).sum(axis=1)
    found = temperature(logits * hot, np.eye(3), truth, np.ones(20_000))
    assert found == pytest.approx(hot, rel=0.1)


def test_nothing_to_fit() -> None:
    assert temperature(np.zeros((0, 3)), np.eye(3), np.zeros(0, int), np.zeros(0)) == 1.0


def test_few_rows_say_little() -> None:
    low, high = interval(0.84, 200)
    assert (round(low, 2), round(high, 2)) == (0.78, 0.88)
    assert "200 rows are few" in how_sure(0.84, 200) and "few" not in how_sure(0.84, 5000)
    assert interval(0.5, 0) == (0.0, 1.0)

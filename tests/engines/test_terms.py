"""Values outside their unit are not known."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.engines.exposition import Point
from extproc.engines.terms import count, fraction, latency_s, most, ratio_by, summed


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, None), (0.0, 0.0), (0.5, 0.5), (1.0, 1.0), (1.005, 1.0), (43.0, None), (-0.1, None), (math.nan, None)],
)
def test_fraction(value: float | None, expected: float | None) -> None:
    assert fraction(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(None, None), (0.0, 0.0), (1.5, 1.5), (-1.0, None), (math.inf, None), (1e6, None)]
)
def test_latency(value: float | None, expected: float | None) -> None:
    assert latency_s(value) == expected


def test_counts() -> None:
    assert (count(None), count(-1.0), count(2.0)) == (None, None, 2.0)
    assert (summed([]), summed([1.0, 2.0]), most([]), most([1.0, 3.0])) == (None, 3.0, None, 3.0)


@given(st.floats())
def test_nothing_unbounded_gets_through(value: float) -> None:
    assert fraction(value) is None or 0 <= fraction(value) <= 1
    assert latency_s(value) is None or 0 <= latency_s(value) < math.inf


def test_the_worst_device_counts_and_pairs_are_by_label() -> None:
    points = (
        Point("used", {"gpu": "a"}, 1.0),
        Point("used", {"gpu": "b"}, 6.0),
        Point("used", {"gpu": "alone"}, 9.0),
        Point("total", {"gpu": "b"}, 10.0),
        Point("total", {"gpu": "a"}, 2.0),
        Point("total", {"gpu": "zero"}, 0.0),
    )
    assert ratio_by(points, "used", "total", label="gpu") == 0.6
    assert ratio_by((), "used", "total", label="gpu") is None

"""Tallies add up, and stay small whatever is counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.tally import MAX_VALUES, OTHER, Buckets, BucketsBy, Counts


def test_counts_by_labels() -> None:
    counts = Counts()
    for values in (("a", "x"), ("a", "y"), ("a", "x")):
        counts.add(values)
    assert dict(counts.items()) == {("a", "x"): 2, ("a", "y"): 1}


def test_too_many_values_of_a_label_are_other() -> None:
    counts = Counts()
    for number in range(100_000):
        counts.add((f"v{number}", "same"))
    found = dict(counts.items())
    assert len(found) == MAX_VALUES + 1
    assert found[(OTHER, "same")] == 100_000 - MAX_VALUES


@pytest.mark.parametrize(
    ("value", "bucket"), [(0, 0), (1, 0), (1.5, 1), (2, 1), (2.1, 2), (float("inf"), 2)], ids=str
)
def test_bounds_are_inclusive(value: float, bucket: int) -> None:
    buckets = Buckets((1, 2))
    buckets.observe(value)
    assert buckets.counts.index(1) == bucket


@given(st.lists(st.floats(0, 100)))
def test_cumulative_counts_grow_to_all(values: list[float]) -> None:
    buckets = Buckets((0.5, 10, 50))
    for value in values:
        buckets.observe(value)
    rows = buckets.cumulative()
    assert rows[-1] == (float("inf"), len(values))
    assert [count for bound, count in rows] == [sum(v <= bound for v in values) for bound, _ in rows]
    assert buckets.total == pytest.approx(sum(values))


def test_histograms_by_labels() -> None:
    series = BucketsBy((1,))
    series.at(("strict",)).observe(5)
    series.at(("strict",)).observe(0)
    for number in range(1000):
        series.at((f"v{number}",)).observe(0)
    found = dict(series.items())
    assert found[("strict",)].counts == [1, 1]
    assert len(found) == MAX_VALUES + 1

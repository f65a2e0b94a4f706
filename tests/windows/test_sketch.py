"""Quantiles against the sorted values themselves."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.windows.sketch import HIGHEST, LOWEST, MAX_BUCKETS, RELATIVE_ERROR, Sketch, merged, upper_quantile

SHARES = (0.0, 0.01, 0.25, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0)

values = st.floats(min_value=LOWEST * 1.001, max_value=HIGHEST) | st.sampled_from([0.1, 0.25, 1.0, 30.0])
samples = st.lists(values, min_size=1, max_size=300)


def sketch_of(seen: list[float]) -> Sketch:
    sketch = Sketch()
    for value in seen:
        sketch.add(value)
    return sketch


def exact(seen: list[float], share: float) -> float:
    """The least value that at least so large a share of all does not exceed, by trying each."""
    ordered = sorted(seen)
    return next(value for at, value in enumerate(ordered, 1) if at >= share * len(ordered) - 1e-9)


@given(samples)
def test_every_quantile_is_within_one_percent(seen: list[float]) -> None:
    found = sketch_of(seen).quantiles(SHARES)
    for share, value in zip(SHARES, found, strict=True):
        assert value == pytest.approx(exact(seen, share), rel=RELATIVE_ERROR + 1e-9)


@given(samples, st.floats(0, 1))
def test_one_quantile_is_what_many_at_once_say(seen: list[float], share: float) -> None:
    sketch = sketch_of(seen)
    assert sketch.quantile(share) == sketch.quantiles((0.0, share, 1.0))[1]


@given(st.lists(st.lists(values, max_size=60), max_size=6))
def test_a_merged_sketch_has_seen_it_all(parts: list[list[float]]) -> None:
    whole = sketch_of([value for part in parts for value in part])
    for order in (parts, parts[::-1]):
        together = merged(sketch_of(part) for part in order)
        assert together.quantiles(SHARES) == whole.quantiles(SHARES)
        assert together.count == whole.count
        assert together.sum == pytest.approx(whole.sum)


def test_merging_leaves_the_parts_alone() -> None:
    one, two = sketch_of([1.0]), sketch_of([2.0])
    merged([one, two]).add(3.0)
    assert (one.count, two.count) == (1, 1)
    assert one.quantile(1.0) == pytest.approx(1.0, rel=RELATIVE_ERROR)


def test_nothing_seen_is_not_zero() -> None:
    assert Sketch().quantiles((0.5, 0.99)) == [None, None]
    assert Sketch().quantile(0.5) is None
    assert Sketch().mean is None
    assert merged([]).quantile(0.5) is None


@given(samples)
def test_count_sum_and_mean_are_exact(seen: list[float]) -> None:
    sketch = sketch_of(seen)
    assert sketch.count == len(seen)
    assert sketch.sum == pytest.approx(math.fsum(seen))
    assert sketch.mean == pytest.approx(math.fsum(seen) / len(seen))


@given(st.lists(st.floats(min_value=0, allow_nan=False), min_size=1, max_size=200))
def test_quantiles_ascend_and_stay_in_range(seen: list[float]) -> None:
    found = [value for value in sketch_of(seen).quantiles(SHARES) if value is not None]
    assert found == sorted(found)
    assert all(0 <= value <= HIGHEST * (1 + 2 * RELATIVE_ERROR) for value in found)


@pytest.mark.parametrize("value", [-1.0, -math.inf, math.nan])
def test_what_is_no_duration_is_not_counted(value: float) -> None:
    sketch = sketch_of([1.0, value])
    assert (sketch.count, sketch.sum) == (1, 1.0)


def test_zero_and_nearly_zero_are_zero() -> None:
    sketch = sketch_of([0.0, LOWEST, LOWEST / 10, 5.0])
    assert sketch.quantiles((0.5, 0.75, 1.0)) == [0.0, 0.0, pytest.approx(5.0, rel=RELATIVE_ERROR)]


def test_infinity_counts_as_the_highest() -> None:
    sketch = sketch_of([math.inf])
    assert sketch.quantile(0.5) == pytest.approx(HIGHEST, rel=RELATIVE_ERROR)
    assert sketch.sum == HIGHEST


def test_buckets_are_bounded() -> None:
    steps = 40_000
    sketch = sketch_of([LOWEST * (HIGHEST / LOWEST) ** (step / steps) for step in range(-100, steps + 100)])
    assert 1000 < sketch.buckets <= MAX_BUCKETS < 1500


@given(st.lists(st.lists(values | st.just(0.0), max_size=60), max_size=8), st.floats(0, 1) | st.just(0.99))
def test_from_the_top_it_is_the_same_quantile(parts: list[list[float]], share: float) -> None:
    sketches = [sketch_of(part) for part in parts]
    assert upper_quantile(sketches, share) == merged(sketches).quantile(share)


@given(st.lists(values | st.just(0.0), min_size=1, max_size=30))
def test_a_look_between_two_values_changes_nothing(seen: list[float]) -> None:
    sketch = Sketch()
    for value in seen:
        upper_quantile([sketch], 0.99)
        sketch.add(value)
    assert upper_quantile([sketch], 0.99) == sketch_of(seen).quantile(0.99)
    assert sketch.count == len(seen)

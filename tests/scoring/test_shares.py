"""Apportionment: exact, fair, and never a share where there is none."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.scoring.shares import apportion, carried, step, total_of

amounts = st.lists(st.just(0.0) | st.floats(0, 1) | st.floats(0, 1e6), min_size=1, max_size=60).filter(any)
totals = st.integers(1, 100_000)


@pytest.mark.parametrize(("endpoints", "total"), [(1, 1000), (3, 1000), (10, 1000), (11, 1100), (1000, 100_000)])
def test_totals(endpoints: int, total: int) -> None:
    assert total_of(endpoints) == total


SPLITS = [
    ("one", [0.3], 1000, [1000]),
    ("thirds", [1, 1, 1], 1000, [334, 333, 333]),
    ("in_proportion", [0.6, 0.2, 0.2], 1000, [600, 200, 200]),
    ("zero_first", [0, 1, 1], 1000, [0, 500, 500]),
    ("zero_between", [1, 0, 2], 999, [333, 0, 666]),
    ("zero_last", [1, 1, 0], 3, [2, 1, 0]),
    ("largest_remainder", [0.5, 0.3, 0.2], 9, [4, 3, 2]),
    ("a_trace_is_a_trace", [1e-9, 1], 1000, [0, 1000]),
    ("subnormal", [0, 5e-324], 1000, [0, 1000]),
]


@pytest.mark.parametrize(("amounts", "total", "shares"), [case[1:] for case in SPLITS], ids=[c[0] for c in SPLITS])
def test_splits(amounts: list[float], total: int, shares: list[int]) -> None:
    assert apportion(amounts, total) == shares


def test_a_zero_in_any_place_of_a_thousand() -> None:
    for zero in range(0, 1000, 37):
        shares = apportion([float(i != zero) * (1 + i % 7) for i in range(1000)], 100_000)
        assert shares[zero] == 0
        assert sum(shares) == 100_000


@given(amounts, totals)
def test_the_sum_is_exact_and_zero_stays_zero(amounts: list[float], total: int) -> None:
    shares = apportion(amounts, total)
    assert sum(shares) == total
    assert min(shares) >= 0
    assert all(share == 0 for share, amount in zip(shares, amounts, strict=True) if amount == 0)


@given(amounts, totals)
def test_more_never_gets_less(amounts: list[float], total: int) -> None:
    ascending = sorted(zip(amounts, apportion(amounts, total), strict=True))
    assert all(a <= b for (low, a), (high, b) in pairwise(ascending) if low < high)


@given(amounts, totals)
def test_no_share_is_off_by_one(amounts: list[float], total: int) -> None:
    whole = sum(amounts)
    for share, amount in zip(apportion(amounts, total), amounts, strict=True):
        assert abs(share - total * amount / whole) < 1 + 1e-6


CARRIED = [
    ("nothing_before", {}, ["a", "b"], None),
    ("all_zero_before", {"a": 0, "b": 0}, ["a", "b"], None),
    ("others_before", {"x": 1000}, ["a", "b"], None),
    ("the_same", {"a": 700, "b": 300}, ["a", "b"], [700, 300]),
    ("one_left", {"a": 600, "b": 200, "c": 200}, ["b", "c"], [500, 500]),
    ("one_came", {"a": 500, "b": 500}, ["a", "b", "c"], [334, 333, 333]),
    ("one_came_to_uneven_ones", {"a": 800, "b": 100, "c": 100}, ["a", "b", "c", "d"], [727, 91, 91, 91]),
    ("one_came_to_mostly_zero_ones", {"a": 1000, "b": 0, "c": 0}, ["a", "b", "c", "d"], [750, 0, 0, 250]),
    ("zero_stays", {"a": 1000, "b": 0}, ["a", "b"], [1000, 0]),
]


@pytest.mark.parametrize(("previous", "keys", "shares"), [c[1:] for c in CARRIED], ids=[c[0] for c in CARRIED])
def test_carried_over(previous: dict[str, int], keys: list[str], shares: list[int] | None) -> None:
    assert carried(previous, keys, 1000) == shares


STEPS = [
    ("near", [500, 500], [700, 300], [700, 300]),
    ("at_the_limit", [500, 500], [750, 250], [750, 250]),
    ("far", [0, 1000], [1000, 0], [249, 751]),
    ("all_in_proportion", [1000, 0, 0], [0, 500, 500], [751, 125, 124]),
    ("a_zero_on_both_sides", [1000, 0, 0], [0, 0, 1000], [751, 0, 249]),
]


@pytest.mark.parametrize(("before", "target", "after"), [case[1:] for case in STEPS], ids=[c[0] for c in STEPS])
def test_steps(before: list[int], target: list[int], after: list[int]) -> None:
    assert step(before, target, 250) == after


@given(amounts, st.data())
def test_a_step_is_bounded_exact_and_in_the_right_direction(amounts: list[float], data: st.DataObject) -> None:
    others = data.draw(st.lists(st.floats(0, 1), min_size=len(amounts), max_size=len(amounts)).filter(any))
    before, target = apportion(amounts, 1000), apportion(others, 1000)
    after = step(before, target, 250)
    assert sum(after) == 1000
    for a, b, wanted in zip(before, after, target, strict=True):
        assert abs(b - a) <= 250
        assert min(a, wanted) - 1 < b < max(a, wanted) + 1


@given(amounts, st.data())
def test_steps_arrive(amounts: list[float], data: st.DataObject) -> None:
    others = data.draw(st.lists(st.floats(0, 1), min_size=len(amounts), max_size=len(amounts)).filter(any))
    at, target = apportion(amounts, 1000), apportion(others, 1000)
    for _ in range(6):
        at = step(at, target, 250)
    assert at == target


def test_no_step_at_all() -> None:
    assert step([500, 500], [900, 100], 0) == [500, 500]

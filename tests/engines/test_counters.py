"""Growth, rates and quantiles between two looks; restarts and clocks that jump."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.engines.counters import (
    MAX_ELAPSED_S,
    NOTHING,
    Counters,
    Growth,
    advance,
    quantile,
    rates,
    share,
    total,
)
from extproc.engines.exposition import Point, Points, wanted

WANTED = wanted(gauges=("level",), counters=("asked",), histograms=("took",))


def asked(*values: float) -> Points:
    return tuple(Point("asked", {"model": str(at)}, value) for at, value in enumerate(values))


def looks(*series: tuple[float, Points]) -> list[Growth]:
    state: Counters | None = None
    found = []
    for now, points in series:
        growth, state = advance(state, points, WANTED, now=now)
        found.append(growth)
    return found


def test_the_first_look_tells_no_growth() -> None:
    assert looks((10.0, asked(1e9))) == [NOTHING]
    assert rates(NOTHING, ["asked"]) == {}


def test_a_rate_is_growth_over_time_summed_over_series() -> None:
    _, growth = looks((10.0, asked(100, 5)), (15.0, asked(150, 5)))
    assert rates(growth, ["asked", "other"]) == {"asked": 10.0}


def test_no_growth_is_a_rate_of_zero() -> None:
    _, growth = looks((10.0, asked(100)), (15.0, asked(100)))
    assert rates(growth, ["asked"]) == {"asked": 0.0}


def test_a_gauge_is_not_counted() -> None:
    level = (Point("level", {}, 3.0),)
    _, growth = looks((10.0, level), (15.0, level))
    assert growth.points == ()


def test_a_restart_tells_nothing_and_the_look_after_it_does() -> None:
    _, restarted, after = looks((0.0, asked(1e6, 7)), (5.0, asked(3, 9)), (10.0, asked(13, 9)))
    assert restarted == NOTHING
    assert rates(after, ["asked"]) == {"asked": 2.0}


def test_two_servers_that_answer_in_turn_never_make_a_burst_of_a_fall() -> None:
    found = looks((0.0, asked(1e6)), (5.0, asked(10)), (10.0, asked(1e6 + 5)), (15.0, asked(15)))
    assert found[1] == found[3] == NOTHING


def test_a_new_series_counts_from_the_next_look() -> None:
    _, second, third = looks((0.0, asked(1)), (5.0, asked(6, 1e9)), (10.0, asked(6, 1e9 + 5)))
    assert (total(second, "asked"), total(third, "asked")) == (5.0, 5.0)


def test_a_series_that_went_is_no_restart() -> None:
    _, growth = looks((0.0, asked(1, 50)), (5.0, asked(6)))
    assert total(growth, "asked") == 5.0


@pytest.mark.parametrize("now", [99.0, -1e9, 100.0 + MAX_ELAPSED_S + 1, 1e12])
def test_a_clock_that_jumps_tells_nothing_and_is_followed(now: float) -> None:
    _, jumped, after = looks((100.0, asked(10)), (now, asked(1e6)), (now + 5, asked(1e6 + 10)))
    assert jumped == NOTHING
    assert rates(after, ["asked"]) == {"asked": pytest.approx(2.0)}


def test_two_looks_at_once_count_as_one() -> None:
    _, at_once, after = looks((100.0, asked(10)), (100.0, asked(1e6)), (105.0, asked(20)))
    assert at_once == NOTHING
    assert rates(after, ["asked"]) == {"asked": 2.0}


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_counter_that_is_no_number_is_absent(value: float) -> None:
    _, growth, after = looks((0.0, asked(1)), (5.0, asked(value)), (10.0, asked(9)))
    assert total(growth, "asked") is None
    assert total(after, "asked") is None


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.lists(st.floats(0, 1e12), min_size=1, max_size=3)), max_size=8))
def test_no_rate_is_negative_or_above_growth_over_the_least_time(series: list[tuple[float, list[float]]]) -> None:
    for growth in looks(*((now, asked(*values)) for now, values in series)):
        for rate in rates(growth, ["asked"]).values():
            assert 0 <= rate <= 3e12 / 0.1


@pytest.mark.parametrize(
    ("part", "whole", "expected"),
    [(1.0, 4.0, 0.25), (None, 4.0, None), (1.0, None, None), (0.0, 0.0, None), (0.0, 4.0, 0.0), (5.0, 4.0, 1.0)],
)
def test_share(part: float | None, whole: float | None, expected: float | None) -> None:
    assert share(part, whole) == expected


def took(counts: dict[str, float], **labels: str) -> Points:
    return tuple(Point("took_bucket", {"le": bound, **labels}, count) for bound, count in counts.items())


@pytest.mark.parametrize(
    ("counts", "q", "expected"),
    [
        ({"0.1": 0, "0.2": 100, "+Inf": 100}, 0.5, 0.15),
        ({"0.1": 100, "0.2": 100, "+Inf": 100}, 0.99, 0.099),
        ({"0.1": 90, "0.2": 100, "+Inf": 100}, 0.99, 0.19),
        ({"0.1": 0, "0.2": 0, "+Inf": 5}, 0.99, 0.2),  # above every bound: the highest
        ({"0.1": 0, "0.2": 0, "+Inf": 0}, 0.99, None),
        ({"0.1": 5, "0.2": 5}, 0.99, None),  # not a complete histogram
        ({"+Inf": 5}, 0.99, None),  # says nothing of how long
        ({"0.1": 7, "0.2": 5, "+Inf": 10}, 0.5, 0.1 * 5 / 7),  # read while it was written
        ({"x": 1, "nan": 1, "0.1": 10, "+Inf": 10}, 0.5, 0.05),
        ({}, 0.5, None),
    ],
)
def test_quantiles(counts: dict[str, float], q: float, expected: float | None) -> None:
    found = quantile(Growth(5.0, took(counts)), "took", q)
    assert found == (None if expected is None else pytest.approx(expected))


def test_a_quantile_is_of_the_interval_not_of_the_whole_life() -> None:
    old = {"0.1": 1_000_000.0, "1": 1_000_000.0, "+Inf": 1_000_000.0}
    new = {"0.1": 1_000_000.0, "1": 1_000_010.0, "+Inf": 1_000_010.0}
    _, growth = looks((0.0, took(old)), (5.0, took(new)))
    assert quantile(growth, "took", 0.99) == pytest.approx(0.991)


def test_series_of_several_engines_are_one_distribution() -> None:
    points = took({"1": 99, "2": 99, "+Inf": 99}, engine="0") + took({"1": 0, "2": 1, "+Inf": 1}, engine="1")
    assert quantile(Growth(5.0, points), "took", 0.995) == pytest.approx(1.5)


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=6), st.floats(0.01, 0.999))
def test_a_quantile_lies_within_the_bounds(counts: list[float], q: float) -> None:
    buckets = {str(float(at)): count for at, count in enumerate(counts, 1)} | {"+Inf": counts[-1]}
    found = quantile(Growth(5.0, took(buckets)), "took", q)
    assert found is None or 0 <= found <= len(counts)

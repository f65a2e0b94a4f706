"""Who breaks the SLO, and the clock of the breach."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.protect.settings import RollbackConfig, SloConfig
from extproc.protect.slo import BreachClock, Standing, breached_s, breaks, misses_mean, must_roll_back, run

SLO = SloConfig(min_requests=20, p99_ms=1800.0, error_rate=0.01, mean_ms=1500.0)
ROLLBACK = RollbackConfig(enabled=True, breach_s=120.0, window_s=300.0, affected=0.3)


@pytest.mark.parametrize(
    ("standing", "broken"),
    [
        (Standing(19, 1.0, 60.0), False),
        (Standing(20, 0.0, 1.8), False),
        (Standing(20, 0.0, 1.81), True),
        (Standing(1000, 0.01, 0.1), False),
        (Standing(1000, 0.011, 0.1), True),
        (Standing(1000, None, None), False),
    ],
)
def test_what_breaks_it(standing: Standing, broken: bool) -> None:
    assert breaks(standing, SLO) is broken


@pytest.mark.parametrize(
    ("standing", "slow"),
    [
        (Standing(20, 0.0, 1.0, 1.51), True),
        (Standing(20, 0.0, 1.0, 1.5), False),
        (Standing(19, 0.0, 1.0, 9.0), False),
        (Standing(20, 0.0, 1.0), False),
    ],
)
def test_the_mean_is_told_apart(standing: Standing, slow: bool) -> None:
    assert misses_mean(standing, SLO) is slow and not breaks(standing, SLO)


def clocked(*looks: tuple[float, bool]) -> BreachClock:
    clock = BreachClock()
    for now, breached in looks:
        clock = run(clock, ROLLBACK, breached=breached, now=now)
    return clock


def test_time_counts_between_two_looks_that_both_find_it_broken() -> None:
    assert breached_s(clocked((0, True))) == 0
    assert breached_s(clocked((0, True), (10, True))) == 10
    assert breached_s(clocked((0, True), (10, False), (20, True))) == 0
    assert breached_s(clocked((0, True), (10, True), (20, False), (30, True), (45, True))) == 25


def test_what_is_older_than_the_window_does_not_count() -> None:
    clock = clocked((0, True), (100, True), (350, False))
    assert breached_s(clock) == 50
    assert breached_s(run(clock, ROLLBACK, breached=False, now=450)) == 0


def test_a_gap_in_the_looks_is_no_breach_of_its_own() -> None:
    assert breached_s(clocked((0, False), (500, True))) == 0


def test_a_clock_that_steps_back_counts_nothing_twice() -> None:
    assert breached_s(clocked((1000, True), (1100, True), (50, True))) == 0


@pytest.mark.parametrize(
    ("seconds", "share", "due"), [(121, 0.31, True), (120, 0.31, False), (121, 0.3, False), (300, 1.0, True)]
)
def test_when_it_is_due(seconds: float, share: float, due: bool) -> None:
    clock = clocked((0, True), (seconds, True))
    assert must_roll_back(clock, share, ROLLBACK) is due
    assert not must_roll_back(clock, share, ROLLBACK.model_copy(update={"enabled": False}))


@given(st.lists(st.tuples(st.floats(0.01, 30), st.booleans()), max_size=80))
def test_never_more_than_the_window_nor_than_the_time_that_passed(looks: list[tuple[float, bool]]) -> None:
    clock, now = BreachClock(), 0.0
    for wait, breached in looks:
        now += wait
        clock = run(clock, ROLLBACK, breached=breached, now=now)
        assert 0 <= breached_s(clock) <= min(now, ROLLBACK.window_s) + 1e-6
        assert len(clock.spans) <= 2 + len(looks)

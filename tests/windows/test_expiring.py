"""Slots of time: what is old is not read, whatever the clock does, and reading changes nothing."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.windows.expiring import Expiring

WINDOW_S, SLOTS = 60.0, 12
SLOT_S = WINDOW_S / SLOTS

moments = st.integers(0, 4000).map(lambda step: step / 8)


def ring() -> Expiring[list[float]]:
    return Expiring(list, window_s=WINDOW_S, slots=SLOTS)


def seen(slots: list[list[float]]) -> list[float]:
    return [value for slot in slots for value in slot]


def written(moments: list[float]) -> Expiring[list[float]]:
    window = ring()
    for moment in moments:
        window.at(now=moment).append(moment)
    return window


@given(st.lists(moments, max_size=40).map(sorted), moments)
def test_all_of_the_window_and_nothing_older_is_read(times: list[float], later: float) -> None:
    now = max([*times, later])
    read = seen(written(times).live(now=now))
    assert all(now - value <= WINDOW_S for value in read)
    assert [value for value in read if now - value < WINDOW_S - SLOT_S] == [
        value for value in times if now - value < WINDOW_S - SLOT_S
    ]
    assert read == sorted(read)


@given(st.lists(moments, max_size=40).map(sorted), moments, moments)
def test_since_reads_nothing_older_and_misses_at_most_one_slot(
    times: list[float], since: float, later: float
) -> None:
    now = max([*times, later])
    window = written(times)
    read = seen(window.since(since, now=now))
    assert all(value >= since for value in read)
    live = seen(window.live(now=now))
    assert [value for value in live if value >= since + SLOT_S] == [
        value for value in read if value >= since + SLOT_S
    ]


@given(st.lists(moments, max_size=40), st.lists(moments, max_size=10))
def test_reading_at_any_time_changes_nothing(times: list[float], reads: list[float]) -> None:
    window = written(times)
    before = copy.deepcopy(window._values)
    for now in reads:
        window.live(now=now)
        window.since(now - 7, now=now)
    assert window._values == before


@given(st.lists(moments, max_size=60))
def test_whatever_the_clock_does_memory_is_bounded_and_nothing_is_read_twice(times: list[float]) -> None:
    window = written(times)
    assert len(window._values) < 2 * SLOTS
    for now in times:
        read = seen(window.live(now=now))
        assert len(read) <= len(times)
        # Later than a slot's beginning, earlier than the end of this one: nothing of the future.
        assert all(now - WINDOW_S <= value < now + SLOT_S for value in read)


def test_forwards_all_is_old() -> None:
    window = written([1.0, 2.0])
    assert window.live(now=1e12) == []
    assert seen(window.live(now=2.0)) == [1.0, 2.0]


def test_a_small_step_back_hides_what_lies_ahead_until_its_time() -> None:
    window = written([100.0])
    assert window.live(now=90.0) == []
    window.at(now=90.0).append(90.0)
    assert seen(window.live(now=90.0)) == [90.0]
    assert seen(window.live(now=101.0)) == [90.0, 100.0]


def test_a_large_step_back_forgets_with_the_next_write() -> None:
    window = written([1e9, 5.0])
    assert seen(window.live(now=5.0)) == [5.0]
    assert window.live(now=1e9) == []


@pytest.mark.parametrize(("now", "expected"), [(0.0, [0.0]), (54.9, [0.0]), (59.9, [0.0]), (60.0, []), (-1.0, [])])
def test_the_edge_of_the_window(now: float, expected: list[float]) -> None:
    assert seen(written([0.0]).live(now=now)) == expected


def test_a_false_value_is_a_value() -> None:
    window = ring()
    first = window.at(now=1.0)
    assert window.at(now=1.5) is first
    assert window.live(now=1.0) == [[]]

"""What a window tells of requests: who is to blame, how long it took, and what is too old."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.model.telemetry import AccessSample
from extproc.windows.latency import NO_TAIL, UNSEEN, LatencyReading, LatencyWindow, LatencyWindows, Tail
from extproc.windows.outcome import outcome
from extproc.windows.sketch import RELATIVE_ERROR
from tests.windows.samples import sample

OK = sample()
BAD_REQUEST = sample(status=400)
BROKEN = sample(status=503)
REFUSED = sample(status=503, flags=("UF",), first_byte_s=None, total_s=0.001)
TIMED_OUT = sample(status=504, flags=("UT",), first_byte_s=None, total_s=30.0)
LEFT = sample(flags=("DC",), total_s=0.15)
FULL = sample(status=503, flags=("UO",), upstream="", first_byte_s=None, total_s=0.001)
LOCAL = sample(status=413, upstream="", first_byte_s=None, total_s=0.001)


def close(value: float) -> Any:
    return pytest.approx(value, rel=RELATIVE_ERROR + 1e-9)


def window_of(*samples: AccessSample, at: float = 1000.0) -> LatencyWindow:
    window = LatencyWindow()
    for one in samples:
        window.record(one, outcome(one), now=at)
    return window


def read(*samples: AccessSample) -> LatencyReading:
    return window_of(*samples).reading(now=1000.0)


def test_nothing_seen_is_none_and_no_rate() -> None:
    reading = read()
    assert reading == UNSEEN
    assert (reading.requests, reading.error_rate, reading.p99_s, reading.mean_s) == (0, None, None, None)
    assert reading.last_at is None


def test_durations_and_their_quantiles() -> None:
    reading = read(*(sample(total_s=step / 100, first_byte_s=step / 1000) for step in range(1, 1001)))
    assert reading.requests == 1000
    assert (reading.p50_s, reading.p95_s) == (close(5.0), close(9.5))
    assert (reading.p99_s, reading.p999_s) == (close(9.9), close(9.99))
    assert (reading.mean_s, reading.first_byte_mean_s) == (pytest.approx(5.005), pytest.approx(0.5005))
    assert (reading.first_byte_p50_s, reading.first_byte_p95_s) == (close(0.5), close(0.95))
    assert reading.first_byte_p99_s == close(0.99)


@pytest.mark.parametrize(
    ("samples", "requests", "errors", "cancelled", "overflow", "error_rate"),
    [
        ([OK] * 4, 4, 0, 0, 0, 0.0),
        ([BAD_REQUEST] * 50, 50, 0, 0, 0, 0.0),
        ([sample(status=429)] * 50, 50, 0, 0, 0, 0.0),
        ([BROKEN] * 50, 50, 50, 0, 0, 1.0),
        ([OK, OK, OK, REFUSED], 4, 1, 0, 0, 0.25),
        ([OK, TIMED_OUT], 2, 1, 0, 0, 0.5),
        ([FULL] * 50, 0, 0, 0, 50, None),
        ([OK, FULL], 1, 0, 0, 1, 0.0),
        ([LEFT] * 50, 0, 0, 50, 0, None),
        ([LOCAL] * 50, 0, 0, 0, 0, None),
    ],
)
def test_counts(
    samples: list[AccessSample],
    requests: int,
    errors: int,
    cancelled: int,
    overflow: int,
    error_rate: float | None,
) -> None:
    reading = read(*samples)
    assert (reading.requests, reading.errors) == (requests, errors)
    assert (reading.cancelled, reading.overflow) == (cancelled, overflow)
    assert reading.error_rate == error_rate


@pytest.mark.parametrize("fast", [BAD_REQUEST, BROKEN, REFUSED, FULL, LOCAL])
def test_what_fails_fast_does_not_look_fast(fast: AccessSample) -> None:
    slow = sample(total_s=5.0, first_byte_s=4.0)
    reading = read(slow, *[fast] * 99)
    assert (reading.p50_s, reading.p99_s, reading.mean_s) == (close(5.0), close(5.0), 5.0)
    assert reading.first_byte_p50_s == close(4.0)


def test_a_timeout_lasted_at_least_so_long() -> None:
    assert read(OK, TIMED_OUT).p99_s == close(30.0)


def test_who_leaves_during_the_answer_has_seen_it_begin() -> None:
    reading = read(LEFT)
    assert (reading.p50_s, reading.first_byte_p50_s) == (None, close(0.1))


def test_old_requests_expire_and_their_time_stays_known() -> None:
    window = window_of(OK, BROKEN)
    assert window.reading(now=1050.0).requests == 2
    later = window.reading(now=1061.0)
    assert (later.requests, later.p99_s, later.error_rate, later.last_at) == (0, None, None, 1000.0)


def test_the_window_can_be_shorter() -> None:
    window = LatencyWindow(window_s=10.0, slots=10)
    window.record(OK, outcome(OK), now=100.0)
    assert window.reading(now=108.0).requests == 1
    assert window.reading(now=111.0).requests == 0


every = st.sampled_from([OK, BAD_REQUEST, BROKEN, REFUSED, TIMED_OUT, LEFT, FULL, LOCAL])
events = st.lists(st.tuples(every, st.floats(0, 1e6)), max_size=60)


@given(events, st.floats(0, 1e6))
def test_no_count_is_ever_negative_whatever_the_clock_does(
    events: list[tuple[AccessSample, float]], at: float
) -> None:
    window = LatencyWindow()
    for one, now in events:
        window.record(one, outcome(one), now=now)
    reading = window.reading(now=at)
    assert 0 <= reading.errors <= reading.requests <= len(events)
    assert reading.cancelled >= 0
    assert reading.overflow >= 0
    assert reading.error_rate is None or 0 <= reading.error_rate <= 1


# --- a window per key


def windows(limit: int = 3) -> LatencyWindows[str]:
    return LatencyWindows(other="other", limit=limit)


def record(windows: LatencyWindows[str], key: str, now: float = 0.0) -> None:
    windows.record(key, OK, outcome(OK), now=now)


def test_each_key_has_its_window() -> None:
    table = windows()
    for key in ("a", "b", "a"):
        record(table, key)
    assert {key: reading.requests for key, reading in table.readings(now=0.0)} == {"a": 2, "b": 1}
    assert table.reading("a", now=0.0).requests == 2
    assert table.reading("never", now=0.0) is UNSEEN


def test_100_000_keys_are_bounded() -> None:
    table = windows(limit=100)
    for number in range(100_000):
        record(table, f"key-{number}")
    counts = {key: reading.requests for key, reading in table.readings(now=0.0)}
    assert len(counts) == 101
    assert counts["other"] == 100_000 - 100


def test_silent_keys_make_room() -> None:
    table = windows()
    for key in ("a", "b", "c"):
        record(table, key, now=0.0)
    record(table, "c", now=50.0)
    record(table, "d", now=70.0)
    assert {key for key, _ in table.readings(now=70.0)} == {"c", "d"}


def test_room_is_looked_for_once_a_slot_and_again_later() -> None:
    table = windows(limit=1)
    record(table, "a", now=0.0)
    record(table, "b", now=58.0)  # looks, and "a" still speaks
    record(table, "b", now=61.0)
    assert {key for key, _ in table.readings(now=61.0)} == {"a", "other"}
    record(table, "b", now=64.0)
    assert {key for key, _ in table.readings(now=64.0)} == {"b", "other"}


def test_a_clock_that_jumped_back_does_not_keep_dead_keys() -> None:
    table = windows(limit=1)
    record(table, "a", now=1e9)
    record(table, "b", now=1e9)
    record(table, "c", now=5.0)
    assert {key for key, _ in table.readings(now=5.0)} == {"c"}


# --- the slow end alone


@given(
    st.lists(
        st.tuples(st.floats(0, 100), st.sampled_from([OK, BROKEN, TIMED_OUT, LEFT, sample(total_s=0.9)])),
        max_size=60,
    ),
    st.floats(90, 200),
)
def test_the_tail_is_that_of_the_whole_reading(seen: list[tuple[float, AccessSample]], now: float) -> None:
    window = LatencyWindow()
    for at, one in sorted(seen, key=lambda pair: pair[0]):
        window.record(one, outcome(one), now=at)
        window.tail(now=at)
    whole, tail = window.reading(now=now), window.tail(now=now)
    assert (tail.p99_s, tail.last_at) == (whole.p99_s, whole.last_at)
    assert (tail.timed == 0) == (whole.p99_s is None)
    assert 0 <= tail.timed <= whole.requests


def test_the_tail_counts_what_has_a_duration() -> None:
    assert window_of(*[OK] * 3, *[BROKEN, BAD_REQUEST, LEFT] * 9, TIMED_OUT).tail(now=1000.0).timed == 4
    assert LatencyWindow().tail(now=0.0) == NO_TAIL == Tail(0, None, None)

"""What a breaker looks at."""

from __future__ import annotations

import pytest

from extproc.model.telemetry import AccessSample
from extproc.windows.outcome import outcome
from extproc.windows.trips import TripWindow, counted
from tests.windows.samples import sample


def seen(*samples: AccessSample, later: float = 0.0, since: float = 0.0) -> tuple[int, int, float | None]:
    window = TripWindow(60.0)
    for one in samples:
        window.record(one, outcome(one), now=1000.0)
    return counted(window.since(since, now=1000.0 + later))


def test_nothing() -> None:
    assert seen() == (0, 0, None)


@pytest.mark.parametrize(
    "one", [sample(status=400), sample(status=429), sample(flags=("DC",)), sample(status=503, flags=("UO",))]
)
def test_what_is_no_word_about_the_engine(one: AccessSample) -> None:
    assert seen(*[one] * 50) == (0, 0, None)


def test_errors_and_latency() -> None:
    requests, errors, p99 = seen(*[sample(total_s=0.5)] * 90, *[sample(status=503, total_s=9.0)] * 10)
    assert (requests, errors) == (100, 10) and p99 == pytest.approx(0.5, rel=0.02), "an error is not slow"


def test_a_timeout_lasted_at_least_so_long() -> None:
    timed_out = sample(status=504, flags=("UT",), total_s=30.0)
    assert seen(*[timed_out] * 5)[2] == pytest.approx(30.0, rel=0.02)


def test_it_expires() -> None:
    assert seen(sample(), later=59.0)[0] in (0, 1)
    assert seen(sample(), later=61.0) == (0, 0, None)


def test_what_was_before_does_not_count() -> None:
    assert seen(sample(), since=1001.0) == (0, 0, None)
    assert seen(sample(), since=1000.0)[0] == 1

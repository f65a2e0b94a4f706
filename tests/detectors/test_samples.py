"""Samples stay bounded, uniform, and the same for the same stream."""

from __future__ import annotations

import numpy as np
import pytest

from extproc.detectors.merging import merged
from extproc.detectors.samples import MAX_SAMPLES, Reservoir, WindowSample, mixed


def test_mixed_has_the_published_values() -> None:
    """SplitMix64 from seed 0: its first two outputs."""
    assert mixed(0) == 0xE220A8397B1DCDAF
    assert mixed(0x9E3779B97F4A7C15) == 0x6E789E6AA1B965F4


def test_a_reservoir_keeps_all_until_it_is_full_and_a_uniform_part_after() -> None:
    reservoir = Reservoir(100, 7)
    for value in range(100):
        reservoir.add(value)
    assert list(reservoir.values) == list(range(100))
    for value in range(100, 10_000):
        reservoir.add(value)
    assert (reservoir.seen, len(reservoir.values)) == (10_000, 100)
    assert 3500 < np.mean(reservoir.values) < 6500


def test_every_value_has_the_same_chance() -> None:
    counts = np.zeros(50)
    for seed in range(4000):
        reservoir = Reservoir(5, mixed(seed))
        for value in range(50):
            reservoir.add(value)
        for value in reservoir.values:
            counts[int(value)] += 1
    assert abs(counts - 400).max() < 100, "five standard deviations"


def test_the_same_stream_gives_the_same_sample() -> None:
    one, other = Reservoir(10, 3), Reservoir(10, 3)
    for value in range(500):
        one.add(value)
        other.add(value)
    assert one.values == other.values


def test_a_window_forgets_by_itself() -> None:
    window = WindowSample(60.0, 1)
    window.add(1.0, now=1000.0)
    window.add(2.0, now=1030.0)
    assert [values for _, values in window.view(now=1031.0)] == [(1.0,), (2.0,)]
    assert [values for _, values in window.view(now=1080.0)] == [(2.0,)]
    assert window.view(now=1200.0) == ()


def test_a_clock_that_steps_back_and_forth_breaks_nothing() -> None:
    window = WindowSample(60.0, 1)
    for now in (1000.0, 10.0, 5000.0, 1.0, 1.5):
        window.add(now, now=now)
    assert [values for _, values in window.view(now=2.0)] == [(1.0, 1.5)]


def test_slots_are_merged_by_what_they_saw() -> None:
    """A slot of few requests does not count as much as one of many."""
    many, few = Reservoir(MAX_SAMPLES, 1), Reservoir(MAX_SAMPLES, 2)
    for _ in range(90_000):
        many.add(1.0)
    for _ in range(10_000):
        few.add(2.0)
    found = merged([(many.seen, tuple(many.values)), (few.seen, tuple(few.values))], seed=5)
    assert len(found) <= MAX_SAMPLES
    assert np.mean(found == 2.0) == pytest.approx(0.1, abs=0.001)
    assert list(found) == sorted(found)


def test_nothing_merges_to_nothing() -> None:
    assert len(merged([], seed=0)) == 0
    assert list(merged([(1, (3.0,))], seed=0)) == [3.0]

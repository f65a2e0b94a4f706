"""The slowest few."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from extproc.detectors.tail import at_least, tail

RANDOM = np.random.default_rng(17)
BASE = np.sort(RANDOM.lognormal(0, 0.5, 4096))


def test_the_same_is_one_in_a_hundred() -> None:
    found = tail({"a": np.sort(RANDOM.lognormal(0, 0.5, 4096))}, {"a": BASE}, min_samples=30)
    assert found is not None and found.share == pytest.approx(0.01, abs=0.006) and found.p > 0.01


def test_three_times_as_many_are_found() -> None:
    live = np.sort(RANDOM.lognormal(0, 0.5, 3000))
    live[2910:] += 10
    found = tail({"a": live}, {"a": BASE}, min_samples=30)
    assert found is not None and found.share == pytest.approx(0.03, abs=0.001) and found.p < 1e-6


def test_equal_values_lie_beyond_nothing() -> None:
    found = tail({"a": [0.2] * 500}, {"a": [0.2] * 500}, min_samples=30)
    assert found is not None and (found.share, found.p) == (0.0, 1.0)


@pytest.mark.parametrize(("live", "base"), [(29, 4096), (100, 99), (0, 4096)])
def test_too_few_for_a_p99(live: int, base: int) -> None:
    assert tail({"a": [1.0] * live}, {"a": [1.0] * base}, min_samples=30) is None


def test_each_length_has_its_own() -> None:
    """Long requests are slow; many of them are no heavy tail."""
    base = {"short": BASE, "long": BASE * 10}
    live = {"short": BASE[::16], "long": BASE * 10}
    found = tail(live, base, min_samples=30)
    assert found is not None and found.share < 0.012


@given(
    draws=st.integers(30, 50_000),
    share=st.floats(0, 1),
    chance=st.floats(0.01, 0.05),
)
def test_the_chance_is_that_of_scipy(draws: int, share: float, chance: float) -> None:
    for hits in {0, 1, draws, int(share * draws), int(draws * chance * (0.5 + share))}:
        assert at_least(hits, draws, chance) == pytest.approx(
            binom.sf(hits - 1, draws, chance), rel=1e-8, abs=1e-290
        )

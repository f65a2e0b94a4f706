"""The quick look: it fires at a rise, at the same value each time, and at nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from extproc.detectors.page_hinkley import PageHinkley


def first_alarm(ranks: list[float]) -> int | None:
    state = PageHinkley()
    for index, rank in enumerate(ranks):
        state.add(rank)
        if state.alarm:
            return index
    return None


def test_the_index_at_which_it_fires() -> None:
    """Forty ranks around the middle, then all of them in the top tenth: +0.35 a value, 12 are passed at the 35th."""
    ranks = [0.4, 0.6] * 20 + [0.95] * 100
    assert first_alarm(ranks) == 40 + 34


def test_the_same_ranks_fire_in_the_same_place_after_a_long_quiet_time() -> None:
    quiet = list(np.random.default_rng(3).uniform(0, 1, 50_000))
    found = first_alarm(quiet + [0.95] * 100)
    assert found is not None and 50_000 <= found - 20 <= 50_040


@pytest.mark.parametrize("seed", range(5))
def test_nothing_fires_while_nothing_changes(seed: int) -> None:
    assert first_alarm(list(np.random.default_rng(seed).uniform(0, 1, 100_000))) is None


def test_a_heavy_tail_does_not_fire() -> None:
    """Ranks know no size: a value a thousand times as large is one step."""
    random = np.random.default_rng(4)
    base = np.sort(random.pareto(1.1, 4000))
    ranks = np.searchsorted(base, random.pareto(1.1, 50_000)) / len(base)
    assert first_alarm(list(ranks)) is None


def test_faster_is_no_alarm() -> None:
    assert first_alarm([0.1] * 10_000) is None

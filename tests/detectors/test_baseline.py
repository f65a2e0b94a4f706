"""When latencies become a baseline, and how many of them are kept."""

from __future__ import annotations

import pytest

from extproc.detectors.baseline import MAX_SETS, Baseline, Baselines, ripe, with_baseline
from extproc.detectors.settings import FreezeConfig

CONFIG = FreezeConfig(after_s=600.0, samples=1000)


@pytest.mark.parametrize(
    ("counts", "elapsed", "is_ripe"),
    [
        ([1000], 600, True),
        ([1000], 599, False),
        ([999], 900, False),
        ([], 900, False),
        ([20_000, 900], 900, True),  # less than one in twenty: rare, and waited for by nobody
        ([10_000, 900], 900, False),
        ([5000, 5000, 999], 900, False),
    ],
)
def test_ten_minutes_and_a_thousand_of_every_common_length(
    counts: list[int], elapsed: float, is_ripe: bool
) -> None:
    assert ripe(counts, elapsed, CONFIG) is is_ripe


def baseline(name: str) -> Baseline:
    return Baseline(parameter_set=name, frozen_at=1.0, strata={"chat normal": {"512": (0.1, 0.2)}})


def test_one_for_each_set_and_not_too_many() -> None:
    kept = Baselines()
    for number in range(MAX_SETS + 5):
        kept = with_baseline(kept, baseline(f"s{number}"))
    kept = with_baseline(kept, baseline("s7"))
    assert len(kept.kept) == MAX_SETS and kept.kept[-1].parameter_set == "s7"
    assert kept.of("s0") is None and kept.of("s8") is not None


def test_by_pool_and_tier() -> None:
    assert baseline("s").of("chat", "normal") == {"512": (0.1, 0.2)}
    assert baseline("s").of("chat", "strict") is None

"""The distance: of slower alone, like for like."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ks_2samp

from extproc.detectors.ks import chance_of, compared, slower_by

RANDOM = np.random.default_rng(11)


def lognormal(count: int, factor: float = 1.0) -> list[float]:
    return list(RANDOM.lognormal(-1.6, 0.5, count) * factor)


def test_slower_is_found_and_faster_is_not() -> None:
    base, slow, fast = lognormal(3000), lognormal(3000, 1.3), lognormal(3000, 0.7)
    found = compared({"a": slow}, {"a": base}, {"a": 3000}, min_samples=30)
    assert found is not None and found.d > 0.15 and found.p < 1e-20 and found.p95_delta_s > 0.05
    found = compared({"a": fast}, {"a": base}, {"a": 3000}, min_samples=30)
    assert found is not None and found.d < 0.01 and found.p > 0.5 and found.p95_delta_s < 0


def test_a_change_of_mix_alone_is_nothing() -> None:
    """Nine times as many long requests: the whole distribution moves, each length's does not."""
    base = {"short": lognormal(2000), "long": lognormal(2000, 8)}
    live = {"short": lognormal(300), "long": lognormal(2700, 8)}
    found = compared(live, base, {"short": 300, "long": 2700}, min_samples=30)
    assert found is not None and found.d < 0.08 and found.p > 0.001


def test_a_tail_alone_is_seen_in_the_p95() -> None:
    base = np.sort(lognormal(4000))
    live = base.copy()
    live[3600:] *= 3
    found = compared({"a": live}, {"a": base}, {"a": 4000}, min_samples=30)
    assert found is not None and found.p95_delta_s > 0.2


@pytest.mark.parametrize(
    ("live", "base"), [({}, {}), ({"a": [1.0] * 29}, {"a": [1.0] * 30}), ({"a": [1.0] * 30}, {"b": [1.0] * 30})]
)
def test_too_little_to_compare(live: dict[str, list[float]], base: dict[str, list[float]]) -> None:
    counts = {name: len(values) for name, values in live.items()}
    assert compared(live, base, counts, min_samples=30) is None


def test_most_requests_must_be_comparable() -> None:
    live, base = {"a": [1.0] * 40, "b": [1.0] * 60}, {"a": [1.0] * 100}
    assert compared(live, base, {"a": 40, "b": 60}, min_samples=30) is None
    assert compared(live, base, {"a": 60, "b": 40}, min_samples=30) is not None


def test_all_identical() -> None:
    found = compared({"a": [0.2] * 100}, {"a": [0.2] * 100}, {"a": 100}, min_samples=30)
    assert found is not None and (found.d, found.p95_delta_s) == (0.0, 0.0) and found.p > 0.9
    found = compared({"a": [0.4] * 100}, {"a": [0.2] * 100}, {"a": 100}, min_samples=30)
    assert found is not None and found.d == 1.0 and found.p < 1e-20


@pytest.mark.parametrize(("live", "base"), [(30, 30), (300, 4096), (4096, 300), (2000, 2001)])
@pytest.mark.parametrize("factor", [0.9, 1.0, 1.02, 1.3, 5.0])
def test_distance_and_chance_are_those_of_scipy(live: int, base: int, factor: float) -> None:
    """Rounded, so that there are ties."""
    now, then = np.round(lognormal(live, factor), 2), np.round(lognormal(base), 2)
    known = ks_2samp(now, then, alternative="less", method="asymp")
    assert slower_by(now, then) == pytest.approx(known.statistic, abs=1e-12)
    assert chance_of(slower_by(now, then), live, base) == pytest.approx(known.pvalue, rel=1e-9)

"""How many live latencies lie beyond the baseline's P99: a change of the slowest few alone, which moves no P95.

Of each length bucket the live ones beyond its own P99 are counted; their sum is binomial with a chance of 1 % each.
The baseline's P99 is an estimate itself: of m values, the true chance of lying beyond it has a standard error of
sqrt(0.01 * 0.99 / m), and two of them are granted before anything counts as more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import exp, lgamma, log, log1p, sqrt

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Array = NDArray[np.float64]

BEYOND = 0.01
GRANTED_ERRORS = 2.0
NEGLIGIBLE = 1e-17


class Tail(Struct, frozen=True):
    """`share` of live values beyond the baseline's P99; `p`: chance of so many or more, before any correction."""

    share: float
    p: float


def tail(
    live: Mapping[str, Sequence[float] | Array],
    baseline: Mapping[str, Sequence[float] | Array],
    *,
    min_samples: int,
) -> Tail | None:
    """By length bucket, values sorted. None where none has enough on both sides for a P99 to mean something."""
    least = max(min_samples, int(1 / BEYOND))
    strata = [name for name in live if len(live[name]) >= min_samples and len(baseline.get(name, ())) >= least]
    if not strata:
        return None
    beyond = total = 0
    expected = 0.0
    for name in strata:
        now, then = np.asarray(live[name], float), np.asarray(baseline[name], float)
        beyond += int(len(now) - np.searchsorted(now, np.quantile(then, 1 - BEYOND), side="right"))
        total += len(now)
        chance = BEYOND + GRANTED_ERRORS * sqrt(BEYOND * (1 - BEYOND) / len(then))
        expected += chance * len(now)
    return Tail(beyond / total, at_least(beyond, total, expected / total))


def at_least(hits: int, draws: int, chance: float) -> float:
    """p of so many hits or more (binomial), `chance` in (0, 1): the shorter of both sums, from its largest term on
    until the terms no longer count."""
    if hits <= 0:
        return 1.0
    odds = chance / (1 - chance)
    if hits > draws * chance:
        return min(
            1.0, _sum(_term(hits, draws, chance), ((draws - k) / (k + 1) * odds for k in range(hits, draws)))
        )
    below = (k / (draws - k + 1) / odds for k in range(hits - 1, 0, -1))
    return max(0.0, 1.0 - _sum(_term(hits - 1, draws, chance), below))


def _term(hits: int, draws: int, chance: float) -> float:
    ways = lgamma(draws + 1) - lgamma(hits + 1) - lgamma(draws - hits + 1)
    return exp(ways + hits * log(chance) + (draws - hits) * log1p(-chance))


def _sum(term: float, ratios: Iterable[float]) -> float:
    """Of a first term and those that follow, each told by its ratio to the one before."""
    total = term
    for ratio in ratios:
        term *= ratio
        total += term
        if term < total * NEGLIGIBLE:
            break
    return total

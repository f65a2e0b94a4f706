"""Two-sample Kolmogorov-Smirnov, one-sided: are live latencies slower than the baseline's, in shape?

Length mixes differ from hour to hour, and long requests are slow: each length bucket (stratum) is compared with the
same one of the baseline, and distances are averaged with one set of weights for both sides, the live mix. A change
of mix alone moves nothing. Of the strata's p the smallest, times their number (Bonferroni), is the whole's.

In numpy alone: importing scipy.stats takes a second of processor time, in which the interpreter serves nothing.
The tests compare both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, sqrt

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Compared(Struct, frozen=True):
    """`d` in [0, 1]: how far the live distribution lies to the right, 0 = nowhere. `p` before correction for keys
    and looks. `p95_delta_s`: live less baseline, averaged over strata. `live`, `baseline`: samples compared."""

    d: float
    p: float
    p95_delta_s: float
    live: int
    baseline: int


def compared(
    live: Mapping[str, Sequence[float] | Array],
    baseline: Mapping[str, Sequence[float] | Array],
    counts: Mapping[str, int],
    *,
    min_samples: int,
) -> Compared | None:
    """By stratum; `counts`, the live requests of each, are its weight. None where no stratum has `min_samples` on
    both sides, or those that have are less than half of the live requests."""
    strata = [
        name for name in live if len(live[name]) >= min_samples and len(baseline.get(name, ())) >= min_samples
    ]
    total = sum(counts.values())
    weight = sum(counts[name] for name in strata)
    if not strata or weight * 2 < total:
        return None
    d = p95_delta = 0.0
    p = 1.0
    for name in strata:
        now, then = np.asarray(live[name], float), np.asarray(baseline[name], float)
        share = counts[name] / weight
        distance = slower_by(now, then)
        d += share * distance
        p = min(p, chance_of(distance, len(now), len(then)))
        p95_delta += share * float(np.quantile(now, 0.95) - np.quantile(then, 0.95))
    return Compared(
        d=d,
        p=min(1.0, p * len(strata)),
        p95_delta_s=p95_delta,
        live=sum(len(live[name]) for name in strata),
        baseline=sum(len(baseline[name]) for name in strata),
    )


def slower_by(now: Array, then: Array) -> float:
    """In [0, 1]: by how much the share of values up to x is smaller now than then, at the x where it is most."""
    ordered_now, ordered_then = np.sort(now), np.sort(then)
    every = np.concatenate([ordered_now, ordered_then])
    shares = [np.searchsorted(values, every, side="right") / len(values) for values in (ordered_now, ordered_then)]
    return max(0.0, float((shares[1] - shares[0]).max()))


def chance_of(distance: float, first: int, second: int) -> float:
    """p of such a one-sided distance or more between large samples of one distribution (Hodges 1958)."""
    more, less = max(first, second), min(first, second)
    product, total = float(more) * less, more + less
    z = sqrt(product / total) * distance
    return exp(-2 * z * z - 2 * z * (more + 2 * less) / sqrt(product * total) / 3)

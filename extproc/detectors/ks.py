"""Two-sample Kolmogorov-Smirnov, one-sided: are live latencies slower than the baseline's, in shape?

Length mixes differ from hour to hour, and long requests are slow: each length bucket (stratum) is compared with the
same one of the baseline, and distances are averaged with one set of weights for both sides, the live mix. A change
of mix alone moves nothing. Of the strata's p the smallest, times their number (Bonferroni), is the whole's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from scipy.stats import ks_2samp

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
        # alternative="less": the live empirical distribution lies below, its values are larger.
        found = ks_2samp(now, then, alternative="less", method="asymp")
        d += share * float(found.statistic)
        p = min(p, float(found.pvalue))
        p95_delta += share * float(np.quantile(now, 0.95) - np.quantile(then, 0.95))
    return Compared(
        d=d,
        p=min(1.0, p * len(strata)),
        p95_delta_s=p95_delta,
        live=sum(len(live[name]) for name in strata),
        baseline=sum(len(baseline[name]) for name in strata),
    )

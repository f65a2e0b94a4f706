"""One look at every key: who is slower than the baseline, and how sure that is.

False alarms: each look's p is multiplied by the number of length buckets, of keys and of looks in a day, which
holds however much looks overlap (Bonferroni). With p < 0.01 the chance of any false alarm in a day, over all keys
together, is at most 1 %; D and the rise of the P95 only lower it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from extproc.detectors.ks import compared
from extproc.detectors.merging import merged
from extproc.detectors.settings import DriftConfig
from extproc.detectors.tail import tail
from extproc.detectors.views import Reference, View
from extproc.model.drift import Drift, DriftKey, Verdict

DAY_S = 86_400.0

TAIL_SHARE = 0.02
"""Of live values beyond the baseline's P99, where 0.01 is expected."""

RELEASE = 0.75
"""A drift ends when D or the rise of the P95 is below this share of its threshold: no flickering."""


NO_REFERENCE = Reference()


def evaluate(
    views: Sequence[View],
    references: Mapping[DriftKey, Reference],
    before: Mapping[DriftKey, Drift],
    config: DriftConfig,
    *,
    seed: int,
) -> Iterator[Verdict]:
    """A verdict for each view, one after the other. Pure, but long: for a thread beside the event loop."""
    looks = max(1.0, DAY_S / config.interval_s) * max(1, len(views))
    return (
        _verdict(view, references.get(view.key, NO_REFERENCE), before.get(view.key), config, (looks, seed))
        for view in views
    )


def _verdict(
    view: View, reference: Reference, before: Drift | None, config: DriftConfig, given: tuple[float, int]
) -> Verdict:
    looks, seed = given
    if not reference.parameter_set:
        return Verdict(key=view.key, state=Drift.UNKNOWN, reason="no_baseline")
    live = {name: merged(slots, seed=seed) for name, slots in view.strata.items()}
    counts = {name: sum(count for count, _ in slots) for name, slots in view.strata.items()}
    found = compared(live, reference.strata, counts, min_samples=config.min_samples)
    if found is None:
        return Verdict(
            key=view.key,
            state=Drift.UNKNOWN,
            reason="few_samples",
            live=sum(map(len, live.values())),
            baseline_set=reference.parameter_set,
        )
    p = min(1.0, found.p * looks)
    slowest = tail(live, reference.strata, min_samples=config.min_samples)
    heavy = slowest is not None and slowest.share > TAIL_SHARE and slowest.p * looks < config.p
    warning = "tail" if heavy else "quick_look" if view.warned else ""
    state, reason = judged(found.d, p, found.p95_delta_s, config, before=before, warning=warning)
    return Verdict(
        key=view.key,
        state=state,
        reason=reason,
        d=found.d,
        p=p,
        p95_delta_s=found.p95_delta_s,
        live=found.live,
        baseline=found.baseline,
        tail_share=None if slowest is None else slowest.share,
        baseline_set=reference.parameter_set,
    )


def judged(
    d: float, p: float, p95_delta_s: float, config: DriftConfig, *, before: Drift | None, warning: str
) -> tuple[Drift, str]:
    """The state and why. `p` is the corrected one; `warning`: what else speaks for a change, "" = nothing does."""
    drifting = before is Drift.DRIFT
    factor = RELEASE if drifting else 1.0
    shape = d > config.d * factor and (p < config.p or drifting)
    rise = p95_delta_s * 1000 >= config.p95_rise_ms * factor
    if shape and rise:
        return Drift.DRIFT, "shape_and_p95"
    if shape:
        return Drift.WARNING, "shape"
    if warning:
        return Drift.WARNING, warning
    return Drift.FINE, "like_baseline"

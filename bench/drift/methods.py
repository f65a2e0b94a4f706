"""Ways to tell that a window is slower than a baseline: ours as it runs, and three plainer ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ks_2samp, mannwhitneyu

from bench.drift.streams import Stream
from extproc.detectors.settings import DriftConfig
from extproc.loops.drift import DriftWatch, evaluated
from extproc.model.drift import Drift
from extproc.model.protection import Incident
from extproc.model.telemetry import AccessSample

Array = NDArray[np.float64]

WINDOW_S, RISE_S, P, QUICK_EVERY_S = 60.0, 0.085, 0.01, 1.0
BASELINE, LIVE = "baseline@0", "live@1"

OURS, CONFIRMED = "ours, first sign", "ours, confirmed"
THRESHOLD, KS, MANN_WHITNEY = "P95 +85 ms", "KS p < 0.01", "Mann-Whitney p < 0.01"
METHODS = (OURS, CONFIRMED, THRESHOLD, KS, MANN_WHITNEY)


def _threshold(live: Array, base: Array) -> bool:
    return bool(np.quantile(live, 0.95) - np.quantile(base, 0.95) >= RISE_S)


def _ks(live: Array, base: Array) -> bool:
    return bool(ks_2samp(live, base, alternative="less", method="asymp").pvalue < P)


def _mann_whitney(live: Array, base: Array) -> bool:
    return bool(mannwhitneyu(live, base, alternative="greater", method="asymptotic").pvalue < P)


PLAIN: Mapping[str, Callable[[Array, Array], bool]] = {
    THRESHOLD: _threshold,
    KS: _ks,
    MANN_WHITNEY: _mann_whitney,
}


@dataclass
class Alarms:
    """By method, whether it says so at each look; `quick_at_s`: when ours warned between looks."""

    at_s: list[float] = field(default_factory=list)
    quick_at_s: list[float] = field(default_factory=list)
    raised: dict[str, list[bool]] = field(default_factory=lambda: {name: [] for name in METHODS})


def look(baseline: Stream, live: Stream, config: DriftConfig) -> Alarms:
    """Every `config.interval_s` all of them look at the same window."""
    found = Alarms()
    watch = DriftWatch(
        None, config, pool_of=lambda _: "chat", save=lambda _: None, report=lambda told: _note(found, told)
    )
    _feed(watch, baseline, BASELINE, 0.0, (0, len(baseline.at_s)))
    watch.freeze(wall=0.0, now=float(baseline.at_s[-1]))
    base = np.random.default_rng(1).permutation(baseline.latency_s)[:4096]
    offset = float(baseline.at_s[-1]) + 2 * WINDOW_S
    fed, end_s = 0, float(live.at_s[-1])
    for at_s in np.arange(QUICK_EVERY_S, end_s, QUICK_EVERY_S):
        upto = int(np.searchsorted(live.at_s, at_s))
        _feed(watch, live, LIVE, offset, (fed, upto))
        fed = upto
        watch.quick_warnings(wall=float(at_s))
        if at_s % config.interval_s:
            continue
        verdicts = evaluated(watch.views(last_good=BASELINE, now=offset + at_s))
        watch.concluded(verdicts, wall=float(at_s))
        states = {each.state for each in verdicts if each.key.parameter_set == LIVE}
        found.at_s.append(float(at_s))
        found.raised[OURS].append(bool(states & {Drift.WARNING, Drift.DRIFT}))
        found.raised[CONFIRMED].append(Drift.DRIFT in states)
        window = live.latency_s[int(np.searchsorted(live.at_s, at_s - WINDOW_S)) : upto][-4096:]
        for name, method in PLAIN.items():
            found.raised[name].append(len(window) >= 30 and method(window, base))
    return found


def _note(found: Alarms, told: Incident) -> None:
    if told.reason == "quick_look" and told.active:
        found.quick_at_s.append(told.at)


def _feed(watch: DriftWatch, stream: Stream, params: str, offset: float, part: tuple[int, int]) -> None:
    for index in range(*part):
        sample = _sample(float(stream.latency_s[index]), str(stream.length[index]), params)
        now = offset + float(stream.at_s[index])
        watch.record((sample,), active=params, last_good=BASELINE, now=now)


def _sample(total_s: float, length: str, params: str) -> AccessSample:
    return AccessSample(
        upstream="10.0.0.1:80",
        cluster="chat",
        route="",
        status=200,
        flags=(),
        first_byte_s=None,
        total_s=total_s,
        tier="normal",
        scenario="",
        request_class="",
        tenant="",
        params=params,
        length=length,
    )


def false_alarms_per_day(alarms: Alarms, method: str) -> float:
    """Times it began to say so, as if a day were like this."""
    raised = alarms.raised[method]
    begun = sum(now and not before for before, now in zip([False, *raised], raised, strict=False))
    if method == OURS:
        begun += len(alarms.quick_at_s)
    return begun * 86_400 / (alarms.at_s[-1] or 1.0)


def delay_s(alarms: Alarms, method: str, since_s: float) -> float | None:
    """From the change to the first look that says so; None = none did. One that said so before is none."""
    looks = [at_s for at_s, raised in zip(alarms.at_s, alarms.raised[method], strict=True) if raised]
    every = [*looks, *alarms.quick_at_s] if method == OURS else looks
    return min((at_s - since_s for at_s in every if at_s >= since_s), default=None)

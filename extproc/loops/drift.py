"""Keeps latencies for the detectors, and baselines; evaluates in a thread, so that no request waits for it.

Used from the event loop's thread only, but for `evaluated`, which is handed values and touches nothing else.
"""

from __future__ import annotations

import logging
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from extproc.detectors.baseline import Baseline, Baselines, place, ripe, with_baseline
from extproc.detectors.evaluate import evaluate
from extproc.detectors.page_hinkley import PageHinkley
from extproc.detectors.samples import MAX_SAMPLES, Reservoir, WindowSample
from extproc.detectors.settings import DriftConfig
from extproc.detectors.views import Reference, View
from extproc.loops.tasks import pause
from extproc.model.drift import Drift, DriftKey, Verdict
from extproc.model.protection import Incident, Kind, Severity
from extproc.model.telemetry import AccessSample
from extproc.windows.outcome import Outcome, outcome

log = logging.getLogger("extproc.loops.drift")

SEED = 20_240_229
BREATH_S = 0.001
"""Between two keys: Python runs one thread at a time, and the event loop's is not to wait for all of them."""

RANKS = 200
"""Steps of a baseline's quantiles, for the quick look."""

QUICK_FORGETS = 10_000
"""Values after which the quick look starts over: a rise of long ago is no news."""


class DriftStatus(Struct, frozen=True):
    """The last look. `wall` in seconds since the epoch."""

    wall: float = 0.0
    verdicts: tuple[Verdict, ...] = ()

    def drifting(self) -> set[str]:
        """Pools with a confirmed drift."""
        return {each.key.pool for each in self.verdicts if each.state is Drift.DRIFT}


class _Key:
    """What is kept of one pool, parameter set and tier."""

    __slots__ = ("last_at", "quick", "since_active", "told", "window")

    def __init__(self) -> None:
        self.window: dict[str, WindowSample] = {}
        self.since_active: dict[str, Reservoir] = {}
        self.quick = PageHinkley()
        self.told = False
        self.last_at = 0.0


class DriftWatch:
    """`save` writes baselines, `pool_of` names the pool of a cluster."""

    def __init__(
        self,
        kept: bytes | None,
        config: DriftConfig,
        *,
        pool_of: Callable[[str], str],
        save: Callable[[bytes], object],
        report: Callable[[Incident], None],
    ) -> None:
        self._config = config
        self._pool_of = pool_of
        self._save = save
        self._report = report
        self.baselines = decode(kept)
        self._ranks: dict[tuple[str, str, str, str], list[float]] = {}
        self._keys: dict[DriftKey, _Key] = {}
        self._collecting = ""
        self._collecting_since: float | None = None
        self.unkept = 0
        self.status = DriftStatus()

    def configure(self, config: DriftConfig) -> None:
        if config.window_s != self._config.window_s:
            self._keys.clear()
        self._config = config

    # ── in ───────────────────────────────────────────────────────────────────────────────────────

    def record(self, samples: Iterable[AccessSample], *, active: str, last_good: str, now: float) -> None:
        """Finished requests. `active`: the set in force, as decisions carry it; `last_good`: the one before it that
        proved itself, whose baseline an unproven one is compared with."""
        if active != self._collecting:
            self._collect(active)
        for sample in samples:
            # What a light pool answered says nothing of the request's own pool.
            if not sample.params or sample.fallback or outcome(sample) is not Outcome.OK:
                continue
            key = DriftKey(self._pool_of(sample.cluster), sample.params, sample.tier)
            known = self._keys.get(key) or self._open(key, now)
            if known is not None:
                self._add(known, key, sample, now)
                self._look_quickly(known, key, sample, last_good)

    def _open(self, key: DriftKey, now: float) -> _Key | None:
        """None where there are too many that are not silent."""
        if len(self._keys) >= self._config.max_keys:
            window_s = self._config.window_s
            self._keys = {each: known for each, known in self._keys.items() if abs(now - known.last_at) <= window_s}
        if len(self._keys) >= self._config.max_keys:
            self.unkept += 1
            return None
        return self._keys.setdefault(key, _Key())

    def _add(self, known: _Key, key: DriftKey, sample: AccessSample, now: float) -> None:
        known.last_at = now
        window = known.window.get(sample.length)
        if window is None:
            seed = SEED + zlib.crc32(repr((key, sample.length)).encode())
            window = known.window[sample.length] = WindowSample(self._config.window_s, seed)
        window.add(sample.total_s, now=now)
        if key.parameter_set == self._collecting:
            if self._collecting_since is None:
                self._collecting_since = now
            kept = known.since_active.get(sample.length)
            if kept is None:
                kept = known.since_active[sample.length] = Reservoir(MAX_SAMPLES, SEED)
            kept.add(sample.total_s)

    def _look_quickly(self, known: _Key, key: DriftKey, sample: AccessSample, last_good: str) -> None:
        """The rank of one value in its baseline, half of it where it falls between two steps."""
        steps = self._steps(key, sample.length, last_good)
        if not steps:
            return
        if known.quick.seen >= QUICK_FORGETS:
            known.quick = PageHinkley()
        known.quick.add(bisect_right(steps, sample.total_s) / len(steps))

    def _steps(self, key: DriftKey, length: str, last_good: str) -> list[float]:
        """Quantiles of the baseline that this one is compared with; empty where there is none."""
        baseline = self.baselines.of(key.parameter_set) or self.baselines.of(last_good)
        if baseline is None:
            return []
        name = (baseline.parameter_set, key.pool, key.tier, length)
        steps = self._ranks.get(name)
        if steps is None:
            values = (baseline.of(key.pool, key.tier) or {}).get(length, ())
            enough = len(values) >= self._config.min_samples
            steps = [values[at * len(values) // RANKS] for at in range(RANKS)] if enough else []
            self._ranks[name] = steps
        return steps

    def _collect(self, active: str) -> None:
        """What will be the baseline of `active` begins anew."""
        self._collecting, self._collecting_since = active, None
        for known in self._keys.values():
            known.since_active = {}

    def breached(self) -> None:
        """The SLO was broken: what was collected so far shows no good day."""
        self._collect(self._collecting)

    # ── baselines ────────────────────────────────────────────────────────────────────────────────

    def is_ripe(self, *, now: float) -> bool:
        """Whether the active set has shown itself for long enough, and has no baseline yet."""
        since = self._collecting_since
        if since is None or self.baselines.of(self._collecting) is not None:
            return False
        counts = [kept.seen for known in self._keys.values() for kept in known.since_active.values()]
        return ripe(counts, max(0.0, now - since), self._config.freeze)

    def freeze(self, *, wall: float, now: float) -> int:
        """What was collected of the active set becomes its baseline; how many requests it stands for.

        Where a breach has just started that anew, what stands in the window; 0 where there is too little of either.
        """
        strata: dict[str, dict[str, tuple[float, ...]]] = {}
        seen = 0
        for key, known in self._keys.items():
            for length in known.window if key.parameter_set == self._collecting else ():
                count, values = self._collected(known, length, now)
                if len(values) >= self._config.min_samples:
                    seen += count
                    kept = tuple(sorted(round(value, 6) for value in values))
                    strata.setdefault(place(key.pool, key.tier), {})[length] = kept
        if not strata:
            return 0
        added = Baseline(parameter_set=self._collecting, frozen_at=wall, strata=strata)
        self.baselines = with_baseline(self.baselines, added)
        self._ranks.clear()
        for known in self._keys.values():
            known.quick = PageHinkley()
        self._save(msgspec.json.encode(self.baselines))
        return seen

    def _collected(self, known: _Key, length: str, now: float) -> tuple[int, Sequence[float]]:
        """(requests, a sample of them) since the set was activated or the last breach; else of the window."""
        since = known.since_active.get(length)
        if since is not None and since.seen >= self._config.min_samples:
            return since.seen, since.values
        slots = known.window[length].view(now=now)
        return sum(count for count, _ in slots), [value for _, values in slots for value in values][:MAX_SAMPLES]

    # ── out ──────────────────────────────────────────────────────────────────────────────────────

    def views(self, *, last_good: str, now: float) -> Work:
        """All that one evaluation needs, copied."""
        views, references = [], {}
        for key, known in self._keys.items():
            strata = {name: view for name, window in known.window.items() if (view := window.view(now=now))}
            if not strata:
                continue
            views.append(View(key, strata, known.quick.alarm))
            baseline = self.baselines.of(key.parameter_set) or self.baselines.of(last_good)
            found = None if baseline is None else baseline.of(key.pool, key.tier)
            if baseline is not None and found is not None:
                references[key] = Reference(baseline.parameter_set, found)
        before = {each.key: each.state for each in self.status.verdicts}
        return Work(tuple(views), references, before, self._config, int(now) & 0xFFFFFFFF)

    def quick_warnings(self, *, wall: float) -> None:
        """Told as soon as they are there, without waiting for a look; each once."""
        judged = {each.key: each for each in self.status.verdicts}
        for key, known in self._keys.items():
            if not known.quick.alarm or known.told:
                continue
            known.told = True
            before = judged.get(key)
            if before is None or before.state not in (Drift.DRIFT, Drift.WARNING):
                self._report(_incident(Verdict(key=key, state=Drift.WARNING, reason="quick_look"), wall))

    def concluded(self, verdicts: tuple[Verdict, ...], *, wall: float) -> None:
        """Take what an evaluation found; changes for the worse and back are incidents."""
        before = {each.key: each.state for each in self.status.verdicts}
        now = {each.key: each for each in verdicts}
        self.status = DriftStatus(wall, verdicts)
        for key, verdict in now.items():
            if _worth_telling(before.get(key), verdict):
                self._report(_incident(verdict, wall))
        for key, state in before.items():
            if key not in now and state in (Drift.DRIFT, Drift.WARNING):
                self._report(_incident(Verdict(key=key, state=Drift.UNKNOWN, reason="silent"), wall))
        for key in now:
            # It has been told: what it is about is in the window by now, or it is over.
            if (known := self._keys.get(key)) is not None and known.quick.alarm:
                known.quick, known.told = PageHinkley(), False


class Work(Struct, frozen=True):
    """One evaluation's input."""

    views: tuple[View, ...]
    references: Mapping[DriftKey, Reference]
    before: Mapping[DriftKey, Drift]
    config: DriftConfig
    seed: int


def evaluated(work: Work) -> tuple[Verdict, ...]:
    """For a thread."""
    verdicts = []
    for verdict in evaluate(work.views, work.references, work.before, work.config, seed=work.seed):
        verdicts.append(verdict)
        pause(BREATH_S)
    return tuple(verdicts)


def _worth_telling(before: Drift | None, verdict: Verdict) -> bool:
    """A quick look's warning has been told already; its end is told like any other's."""
    bad, state = (Drift.DRIFT, Drift.WARNING), verdict.state
    return state is not before and (state in bad or before in bad) and verdict.reason != "quick_look"


def _incident(verdict: Verdict, wall: float) -> Incident:
    key = verdict.key
    severity = {Drift.DRIFT: Severity.CRITICAL, Drift.WARNING: Severity.WARNING}.get(verdict.state, Severity.INFO)
    figures = {"d": verdict.d, "p": verdict.p, "p95_delta_s": verdict.p95_delta_s}
    return Incident(
        at=wall,
        kind=Kind.DRIFT,
        subject=f"{key.pool}/{key.tier}",
        state=verdict.state.value,
        reason=verdict.reason,
        severity=severity,
        active=verdict.state in (Drift.DRIFT, Drift.WARNING),
        evidence={
            "parameter_set": key.parameter_set,
            "baseline_set": verdict.baseline_set,
            **{name: None if value is None else float(f"{value:.4g}") for name, value in figures.items()},
            "live": verdict.live,
        },
    )


def decode(kept: bytes | None) -> Baselines:
    """None are left where the file is broken, which is said in one line: drift is unknown then, never fine."""
    if kept is None:
        return Baselines()
    try:
        return msgspec.json.decode(kept, type=Baselines)
    except msgspec.MsgspecError as error:
        log.error("baselines are not readable, there are none now: %s", error)
        return Baselines()

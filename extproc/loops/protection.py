"""The protection loop: finished requests and loads in; access to pools, limits for Envoy and incidents out.

It decides by the clock, once per `protection.interval_s`; what one request gets, the snapshot it finds decides.
Used from the event loop's thread only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import ceil
from typing import Protocol

from msgspec import Struct

from extproc.loops.breakers import FALLBACK, PARAMETERS, POOL, Breakers, Kept, badness, encode
from extproc.loops.drift import DriftWatch, Work
from extproc.loops.latency import Latency
from extproc.loops.lengths import LengthWatch
from extproc.model.drift import Drift
from extproc.model.names import RequestClass
from extproc.model.protection import (
    CALM,
    Incident,
    Kind,
    ParameterAccess,
    PoolAccess,
    Protection,
    Severity,
)
from extproc.model.telemetry import AccessSample, UsageSample
from extproc.model.topology import Endpoint, Role
from extproc.pools import PoolSpec
from extproc.protect import degrade, slo
from extproc.protect.breaker import State
from extproc.protect.calibration import calibrated
from extproc.protect.slo import BreachClock
from extproc.settings import Settings, safe_set
from extproc.windows.latency import LatencyReading

MANY_ENDPOINTS = 50
"""From here on the SLO is looked at every so often only: a reading merges a dozen sketches."""

SLO_EVERY_S = 5.0

RETRY_AFTER_MOST_S = 60

POOL_REASON, FALLBACK_REASON, PARAMETERS_REASON = "pool_breaker", "fallback_breaker", "parameter_breaker"
"""What headers, audit and metrics say."""

LoadOf = Callable[[PoolSpec, Sequence[Endpoint], float], Iterable[float | None]]
"""Loads of a pool's healthy endpoints at `now`."""


class Parameters(Protocol):
    """The history of parameter sets, as far as protection has a say in it."""

    @property
    def label(self) -> str:
        """The active set's, as decisions carry it."""
        ...

    @property
    def can_roll_back(self) -> bool: ...

    @property
    def last_good_label(self) -> str: ...

    def prove(self, reason: str) -> Incident | None: ...

    def roll_back(self, reason: str, evidence: Mapping[str, float | int | str | None]) -> Incident | None: ...

    def block(self, reason: str) -> bool:
        """No new set is activated by itself while there is a reason not to. Whether one may come now."""
        ...

    def keep(self, *, now: float) -> None:
        """Write what the disk did not take before."""
        ...


class Slo(Struct, frozen=True):
    """`standings` by `pool/endpoint`; `broken` by P99 or errors, `slow_mean` by the mean,
    which is told only.

    `blamed`: those that the active parameter set breaks by its own requests. `affected_share`, `breached_s`: what
    a rollback goes by, of the active set alone as well."""

    standings: Mapping[str, slo.Standing] = {}
    broken: tuple[str, ...] = ()
    slow_mean: tuple[str, ...] = ()
    blamed: Mapping[str, slo.Standing] = {}
    affected_share: float = 0.0
    breached_s: float = 0.0


class Status(Struct, frozen=True):
    """What the last tick left. `wall` in seconds since the epoch."""

    wall: float = 0.0
    protection: Protection = CALM
    limits: Mapping[str, int] = {}
    loads: Mapping[str, float | None] = {}
    panic: str = ""
    slo: Slo = Slo()


class Protector:
    """`publish` is told of each change, `report` of each incident, `save` what outlives a restart,
    and says whether it could; `reconsider`
    makes the active parameter set the one in force."""

    def __init__(
        self,
        kept: Kept,
        *,
        pool_of: Callable[[str], str],
        load_of: LoadOf,
        parameters: Parameters,
        drift: DriftWatch,
        lengths: LengthWatch,
        publish: Callable[[Protection], None],
        report: Callable[[Incident], None],
        save: Callable[[bytes], bool],
        reconsider: Callable[[], None],
    ) -> None:
        self.breakers = Breakers(kept, pool_of=pool_of)
        self._saved = kept
        self._load_of = load_of
        self._parameters = parameters
        self.drift = drift
        self.lengths = lengths
        self._lengths_at: float | None = None
        self._publish = publish
        self._report = report
        self._save = save
        self._reconsider = reconsider
        self._specs: tuple[PoolSpec, ...] = ()
        self._clock = BreachClock()
        self._judged = ""
        self._slo_at: float | None = None
        self._degraded: set[str] = set()
        self.bytes_per_token: Mapping[str, float] = {}
        self.status = Status()

    def configure(self, settings: Settings) -> None:
        self._config = settings.protection
        self._specs = settings.pool_specs()
        self._degraded &= {spec.name for spec in self._specs}
        self.breakers.configure(settings.protection, self._specs)
        self.drift.configure(settings.drift)
        self._lengths_every_s = settings.telemetry.interval_s
        self._safe_label = safe_set(settings.parameters(), settings.protection.safe_set).label()
        rules = settings.inference_params.max_tokens
        self.lengths.configure(
            settings.lengths,
            settings.scenarios,
            default=rules.default,
            whitelist=rules.whitelist,
            light={spec.name for spec in self._specs if spec.role is Role.LIGHT},
        )

    def record(self, samples: Sequence[AccessSample], *, now: float) -> None:
        label = self._parameters.label
        self.breakers.record(samples, dynamic_set=label, now=now)
        self.drift.record(samples, active=label, last_good=self._parameters.last_good_label, now=now)

    def usage(self, sample: UsageSample) -> None:
        """One answer's tokens: how long answers are, and how many bytes of a prompt are a token."""
        self.lengths.record(sample)
        self.bytes_per_token = calibrated(
            self.bytes_per_token, sample.model, sample.request_bytes, sample.prompt_tokens
        )

    def drift_work(self, *, now: float) -> Work:
        return self.drift.views(last_good=self._parameters.last_good_label, now=now)

    def prove_where_ripe(self, *, now: float, wall: float) -> None:
        """The active set did well for long enough: its latencies become its baseline."""
        if self.status.slo.broken:
            self.drift.breached()
        elif self.drift.is_ripe(now=now):
            self.drift.freeze(wall=wall, now=now)
            incident = self._parameters.prove("without an SLO breach for long enough")
            if incident is not None:
                self._report(incident)

    def tick(
        self,
        endpoints: Mapping[str, Sequence[Endpoint]],
        latency: Latency,
        *,
        now: float,
        wall: float,
        jitter: Callable[[], float],
    ) -> bool:
        """Whether anything changed that Envoy or requests are to be told of. `endpoints` by the pool's name."""
        for incident in self.breakers.step(now=now, wall=wall, jitter=jitter):
            self._report(incident)
        loads = {spec.name: self._load(spec, endpoints.get(spec.name, ()), now, wall) for spec in self._specs}
        self.drift.quick_warnings(wall=wall)
        panic = self._panic(wall)
        self._judge_anew(latency)
        standings = self._slo(endpoints, latency, now, wall)
        if self._parameters.block(self._why_blocked()):
            self._reconsider()
        self._learn_lengths(now)
        before = self.status
        protection, limits = self._protection(panic), self._limits(panic)
        self.status = Status(wall, protection, limits, loads, panic, standings)
        self._keep(now)
        self.prove_where_ripe(now=now, wall=wall)
        changed = protection != before.protection
        if changed:
            self._publish(protection)
        return changed or limits != before.limits

    def _learn_lengths(self, now: float) -> None:
        at = self._lengths_at
        if at is None or now < at or now - at >= self._lengths_every_s:
            self._lengths_at = now
            self.lengths.step()

    # ── what follows ─────────────────────────────────────────────────────────────────────────────

    def _protection(self, panic: str) -> Protection:
        pools = {
            spec.name: access
            for spec in self._specs
            if spec.role is not Role.LIGHT and (access := self._access(spec.name, panic)) is not None
        }
        state = self.breakers.state(PARAMETERS)
        parameters = None if state is State.CLOSED else ParameterAccess(self._share(PARAMETERS), PARAMETERS_REASON)
        if not self._config.enabled:
            pools, parameters = {}, None
        return Protection(
            pools=pools,
            parameters=parameters,
            degraded=tuple(sorted(self._degraded)),
            light=tuple(self._light(panic)),
            retry_after_s=self._retry_after_s() if pools else 0,
            bytes_per_token={name: round(value, 1) for name, value in self.bytes_per_token.items()}
            if pools
            else {},
            lengths=self.lengths.told,
        )

    def _access(self, pool: str, panic: str) -> PoolAccess | None:
        """None = it takes everybody. In a panic it does, and yet probes have to be told apart while it is tried
        out: they close it."""
        served = {each.value for each in self._config.fallback.classes}
        exempt = tuple(each.value for each in RequestClass if each.value not in served)
        by_pool, by_fallback = self.breakers.state(POOL + pool), self.breakers.state(FALLBACK + pool)
        if pool == panic and by_pool is State.OPEN:
            return None
        if by_pool is not State.CLOSED:
            share = 0.0 if by_fallback is State.OPEN else self._share(POOL + pool)
            critical = RequestClass.CRITICAL.value  # its own breaker in Envoy lets it pass
            return PoolAccess(share, POOL_REASON, tuple(dict.fromkeys((critical, *exempt))), alone=pool == panic)
        if by_fallback is not State.CLOSED:
            return PoolAccess(self._share(FALLBACK + pool), FALLBACK_REASON, exempt, serves_anyway=True)
        return None

    def _share(self, name: str) -> float:
        half_open = self.breakers.state(name) is State.HALF_OPEN
        return self.breakers.config_of(name).probe_share if half_open else 0.0

    def _light(self, panic: str) -> Iterator[str]:
        for spec in self._specs:
            if spec.role is not Role.LIGHT:
                continue
            if spec.name == panic or self.breakers.state(POOL + spec.name) is not State.OPEN:
                yield spec.name

    def _retry_after_s(self) -> int:
        """The shortest back-off of those that are open. What is left of it would be another snapshot each
        second."""
        states = self.breakers.states.values()
        waits = [each.until - each.since for each in states if each.state is State.OPEN]
        return min(RETRY_AFTER_MOST_S, max(1, ceil(min(waits, default=1.0))))

    def _limits(self, panic: str) -> dict[str, int]:
        """Requests Envoy lets into a pool at DEFAULT priority, where that is not what the config says."""
        limits: dict[str, int] = {}
        if not self._config.enabled:
            return limits
        for spec in self._specs:
            state = self.breakers.state(POOL + spec.name)
            if spec.name != panic and state is not State.CLOSED:
                half_open = state is State.HALF_OPEN
                limits[spec.name] = self._config.breakers.pool.probe_concurrency if half_open else 0
        return limits

    def _panic(self, wall: float) -> str:
        """The pool that serves although none may, "" while one may.

        One that is tried out is none that may: to refuse nineteen in twenty where there is nowhere else to go helps
        nobody, and would be worse than the moment before, when it was open and served as the least bad one. A light
        pool that is tried out takes as many as ever.
        """
        serving = [spec for spec in self._specs if spec.role not in (Role.SHADOW, Role.CANARY)]
        needed = bool(serving) and not any(self._takes_all(each) for each in serving)
        needed = needed and self._config.breakers.panic and self._config.enabled
        before = self.status.panic
        stays = before in {spec.name for spec in serving}
        chosen = "" if not needed else before if stays else self._least_bad(serving)
        if before and chosen != before:
            self._report(_panic(wall, before, active=False))
        if chosen and chosen != before:
            self._report(_panic(wall, chosen, active=True))
        return chosen

    def _takes_all(self, spec: PoolSpec) -> bool:
        state = self.breakers.state(POOL + spec.name)
        return state is State.CLOSED or (spec.role is Role.LIGHT and state is State.HALF_OPEN)

    def _least_bad(self, serving: Sequence[PoolSpec]) -> str:
        """Among equals a light pool is the last: it takes a few requests at a time, of its own APIs, cut short."""

        def rank(spec: PoolSpec) -> tuple[tuple[float, float], bool]:
            return badness(self.breakers.seen(POOL + spec.name)), spec.role is Role.LIGHT

        return min(serving, key=rank).name

    def _load(self, spec: PoolSpec, endpoints: Sequence[Endpoint], now: float, wall: float) -> float | None:
        load = degrade.pool_load(self._load_of(spec, endpoints, now))
        was = spec.name in self._degraded
        rules = self._config.degrade
        is_degraded = self._config.enabled and degrade.degraded(was, load, rules)
        if is_degraded is not was:
            (self._degraded.add if is_degraded else self._degraded.discard)(spec.name)
            self._report(_degraded(wall, spec.name, load, rules.mode, active=is_degraded))
        return load

    def _why_blocked(self) -> str:
        closed = self.breakers.state(PARAMETERS) is State.CLOSED
        return "" if closed or not self._config.enabled else PARAMETERS_REASON

    # ── SLO and rollback ─────────────────────────────────────────────────────────────────────────

    def _judge_anew(self, latency: Latency) -> None:
        """Another set is in force: it answers for what it does from here on, not for what the one before it did."""
        label = self._parameters.label
        if label == self._judged:
            return
        if self._judged:
            latency.begin_set(label)
            self._clock, self._slo_at = BreachClock(), None
        self._judged = label

    def _answers_for(self) -> tuple[str, ...]:
        """Whose requests are held against the active set: its own. A breach it began goes on under the safe set
        that took over; one that it found when it came is not its own."""
        return (self._judged, self._safe_label) if self._clock.spans else (self._judged,)

    def _slo(self, endpoints: Mapping[str, Sequence[Endpoint]], latency: Latency, now: float, wall: float) -> Slo:
        placed = [
            (spec.name, each)
            for spec in self._specs
            if spec.role is not Role.LIGHT
            for each in endpoints.get(spec.name, ())
        ]
        due = self._slo_at is None or now < self._slo_at or now - self._slo_at >= SLO_EVERY_S
        if len(placed) > MANY_ENDPOINTS and not due:
            return self.status.slo
        self._slo_at = now
        found = self._standings(placed, latency, now)
        self._roll_back_where_due(found, wall)
        return found

    def _standings(self, placed: Sequence[tuple[str, Endpoint]], latency: Latency, now: float) -> Slo:
        drifting = self._drifting()
        sets = self._answers_for()
        standings, blamed, affected = {}, {}, []
        for pool, endpoint in placed:
            name = f"{pool}/{endpoint.key}"
            standings[name] = _standing(latency.reading(endpoint.key, now=now))
            own = _standing(latency.under(endpoint.key, sets, now=now))
            if slo.breaks(own, self._config.slo):
                blamed[name] = own
            affected.append(name in blamed or pool in drifting)
        # Drift alone warns: only what also breaks the promise is undone.
        self._clock = slo.run(self._clock, self._config.rollback, breached=bool(blamed), now=now)
        share = sum(affected) / len(affected) if affected else 0.0
        broken = tuple(name for name, each in standings.items() if slo.breaks(each, self._config.slo))
        slow = tuple(name for name, each in standings.items() if slo.misses_mean(each, self._config.slo))
        return Slo(standings, broken, slow, blamed, share, slo.breached_s(self._clock))

    def _drifting(self) -> set[str]:
        """Pools where the active set's requests drift."""
        return {
            each.key.pool
            for each in self.drift.status.verdicts
            if each.state is Drift.DRIFT and each.key.parameter_set == self._judged
        }

    def _roll_back_where_due(self, found: Slo, wall: float) -> None:
        rules = self._config.rollback
        if not self._config.enabled or not self._parameters.can_roll_back:
            return
        if not found.blamed or not slo.must_roll_back(self._clock, found.affected_share, rules):
            return
        worst = max(each.p99_s or 0.0 for each in found.blamed.values())
        rates = [each.error_rate or 0.0 for each in found.blamed.values()]
        evidence: dict[str, float | int | str | None] = {
            "breached_s": round(found.breached_s, 1),
            "affected_share": round(found.affected_share, 3),
            "worst_p99_s": round(worst, 3),
            "worst_error_rate": round(max(rates), 4),
            "drifting": ", ".join(sorted(self._drifting())),
        }
        incident = self._parameters.roll_back("slo_breached", evidence)
        if incident is not None:
            self._report(incident)
            self._reconsider()

    def _keep(self, now: float) -> None:
        """What a full disk did not take is tried again."""
        self._parameters.keep(now=now)
        kept = self.breakers.kept()
        if kept != self._saved and self._save(encode(kept)):
            self._saved = kept


def _standing(reading: LatencyReading) -> slo.Standing:
    return slo.Standing(reading.requests, reading.error_rate, reading.p99_s, reading.mean_s)


def _panic(wall: float, pool: str, *, active: bool) -> Incident:
    return Incident(
        at=wall,
        kind=Kind.PANIC,
        subject=POOL + pool,
        state="serving" if active else "over",
        reason="no pool is closed, this one is the least bad",
        severity=Severity.CRITICAL if active else Severity.INFO,
        active=active,
    )


def _degraded(wall: float, pool: str, load: float | None, mode: str, *, active: bool) -> Incident:
    return Incident(
        at=wall,
        kind=Kind.DEGRADE,
        subject=POOL + pool,
        state="degraded" if active else "normal",
        reason="switched by hand" if mode != "auto" else "load",
        severity=Severity.WARNING if active else Severity.INFO,
        active=active,
        evidence={"load": None if load is None else round(load, 3)},
    )

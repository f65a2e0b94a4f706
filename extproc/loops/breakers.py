"""All breakers of a deployment: windows of finished requests in, states and incidents out.

Their names: `parameters`, `pool/<name>` and `fallback/<name>`. They are stepped by the clock, never by a request.
Used from the event loop's thread only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from extproc.model.protection import Incident, Kind, Severity
from extproc.model.telemetry import AccessSample
from extproc.model.topology import Role
from extproc.pools import PoolSpec
from extproc.protect import breaker as machine
from extproc.protect.breaker import Breaker, Seen, State
from extproc.protect.settings import BreakerConfig, ProtectionConfig
from extproc.windows.outcome import Outcome, outcome
from extproc.windows.trips import TripWindow, counted

log = logging.getLogger("extproc.loops.breakers")

PARAMETERS = "parameters"
POOL, FALLBACK = "pool/", "fallback/"

_SEVERITY = {State.OPEN: Severity.CRITICAL, State.HALF_OPEN: Severity.WARNING, State.CLOSED: Severity.INFO}


class Kept(Struct, frozen=True):
    """What outlives a restart."""

    breakers: Mapping[str, Breaker] = {}


class Breakers:
    """`pool_of` names the pool of an Envoy cluster."""

    def __init__(self, kept: Kept, *, pool_of: Callable[[str], str]) -> None:
        self._pool_of = pool_of
        self.states: dict[str, Breaker] = dict(kept.breakers)
        self._windows: dict[tuple[str, bool], TripWindow] = {}
        self._counted_from: dict[str, float] = {}
        self._trying: frozenset[str] = frozenset()
        self._dynamic_set = ""
        self._last_seen: dict[str, Seen] = {}
        self._roles: dict[str, Role] = {}
        self._config: ProtectionConfig | None = None

    def configure(self, config: ProtectionConfig, specs: Iterable[PoolSpec]) -> None:
        """Breakers of pools that left are forgotten."""
        if self._config is not None and config.breakers.window_s != self._config.breakers.window_s:
            self._windows.clear()
        self._config = config
        self._roles = {spec.name: spec.role for spec in specs}
        names = set(self.names())
        self.states = {name: self.states.get(name, Breaker()) for name in sorted(names)}
        self._windows = {key: window for key, window in self._windows.items() if key[0] in self._roles}
        self._look_who_tries()

    def _look_who_tries(self) -> None:
        half_open = (name for name, each in self.states.items() if each.state is State.HALF_OPEN)
        self._trying = frozenset(half_open)

    def names(self) -> Iterator[str]:
        yield PARAMETERS
        for name, role in self._roles.items():
            yield POOL + name
            if role is not Role.LIGHT:
                yield FALLBACK + name

    def config_of(self, name: str) -> BreakerConfig:
        assert self._config is not None, "configured before it is stepped"
        return getattr(self._config.breakers, name.partition("/")[0])  # type: ignore[no-any-return]

    def state(self, name: str) -> State:
        return self.states.get(name, Breaker()).state

    def seen(self, name: str) -> Seen:
        """What the last step saw."""
        return self._last_seen.get(name, Seen())

    # ── in ───────────────────────────────────────────────────────────────────────────────────────

    def record(self, samples: Iterable[AccessSample], *, dynamic_set: str, now: float) -> None:
        """Finished requests. `dynamic_set`: the parameter set that the breaker of parameters is about."""
        if dynamic_set != self._dynamic_set:
            # What the set before did says nothing of this one.
            self._dynamic_set, known = dynamic_set, self._dynamic_set
            if known:
                self._counted_from[PARAMETERS] = now
        for sample in samples:
            pool = self._pool_of(sample.cluster)
            role = self._roles.get(pool)
            if role is None:
                continue
            ended = outcome(sample)
            dynamic = sample.params == dynamic_set
            self._window(pool, dynamic=dynamic).record(sample, ended, now=now)
            if self._trying:
                self._try(pool, role, sample, ended, dynamic=dynamic)

    def _try(self, pool: str, role: Role, sample: AccessSample, ended: Outcome, *, dynamic: bool) -> None:
        """The outcome of a probe goes to whatever is half open. To a light pool any request is one."""
        light = role is Role.LIGHT
        if ended not in (Outcome.OK, Outcome.ERROR) or not (sample.probe or light):
            return
        names = {POOL + pool} if light else {POOL + pool, FALLBACK + pool} | ({PARAMETERS} if dynamic else set())
        for name in names & self._trying:
            slow_s = machine.slow_s(self.config_of(name))
            bad = ended is Outcome.ERROR or (slow_s is not None and sample.total_s > slow_s)
            self.states[name] = machine.probed(self.states[name], good=int(not bad), bad=int(bad))

    def _window(self, pool: str, *, dynamic: bool) -> TripWindow:
        """Of one pool: a thousand good requests of one must not hide another that fails. All its breakers share
        it."""
        key = (pool, dynamic)
        window = self._windows.get(key)
        if window is None:
            assert self._config is not None, "configured before anything is recorded"
            window = self._windows[key] = TripWindow(self._config.breakers.window_s)
        return window

    # ── out ──────────────────────────────────────────────────────────────────────────────────────

    def step(self, *, now: float, wall: float, jitter: Callable[[], float]) -> list[Incident]:
        """Move what has to move. `now` in monotonic seconds, `wall` in seconds since the epoch."""
        return [
            incident
            for name in self.names()
            if (incident := self._step(name, now=now, wall=wall, jitter=jitter())) is not None
        ]

    def _step(self, name: str, *, now: float, wall: float, jitter: float) -> Incident | None:
        config, before = self.config_of(name), self.states[name]
        seen = self._worst(name, config, now)
        self._last_seen[name] = seen if before.state is State.CLOSED else self._last_seen.get(name, seen)
        after, moved = machine.step(before, seen, config, now=wall, jitter=jitter)
        self.states[name] = after
        if moved is None:
            return None
        # What was seen before says nothing of what comes.
        self._counted_from[name] = now
        self._look_who_tries()
        return _incident(name, before, after, seen, wall)

    def _worst(self, name: str, config: BreakerConfig, now: float) -> Seen:
        """The window that trips it, else the one with most errors."""
        seen = [Seen(*counted(slots)) for slots in self._slots_of(name, now)]
        tripping = [each for each in seen if machine.tripped(each, config) is not None]
        return max(tripping or seen, key=badness, default=Seen())

    def _slots_of(self, name: str, now: float) -> Iterator[list[Any]]:
        """By pool, since the breaker closed: `parameters` is about requests by the dynamic set alone."""
        assert self._config is not None, "configured before it is stepped"
        since = self._counted_from.get(name, now - 2 * self._config.breakers.window_s)
        if name == PARAMETERS:
            stable = (pool for pool, role in self._roles.items() if role is not Role.LIGHT)
            wanted = [[(pool, True)] for pool in stable]
        else:
            pool = name.partition("/")[2]
            wanted = [[(pool, True), (pool, False)]]
        for keys in wanted:
            windows = [self._windows[key] for key in keys if key in self._windows]
            yield [slot for window in windows for slot in window.since(since, now=now)]

    def kept(self) -> Kept:
        return Kept({name: each for name, each in self.states.items() if each != Breaker()})


def badness(seen: Seen) -> tuple[float, float]:
    """To find the least bad: errors first, then latency."""
    return (seen.errors / seen.requests if seen.requests else 0.0, seen.p99_s or 0.0)


def _incident(name: str, before: Breaker, after: Breaker, seen: Seen, wall: float) -> Incident:
    probes = {"probes_good": before.good, "probes_bad": before.bad} if before.state is State.HALF_OPEN else {}
    window = (
        {"requests": seen.requests, "errors": seen.errors, "p99_s": seen.p99_s}
        if before.state is State.CLOSED
        else {}
    )
    reason = after.reason if after.state is State.OPEN else f"was: {after.reason}"
    return Incident(
        at=wall,
        kind=Kind.BREAKER,
        subject=name,
        state=after.state.value,
        reason=reason,
        severity=_SEVERITY[after.state],
        active=after.state is not State.CLOSED,
        evidence={**window, **probes, "open_for_s": max(0.0, round(after.until - wall, 1))},
    )


def encode(kept: Kept) -> bytes:
    return msgspec.json.encode(kept)


def decode(data: bytes | None) -> Kept:
    """What was kept; nothing where the file is missing or broken, which is said in one line."""
    if data is None:
        return Kept()
    try:
        return msgspec.json.decode(data, type=Kept)
    except msgspec.MsgspecError as error:
        log.error("the state of breakers is not readable, all begin closed: %s", error)
        return Kept()

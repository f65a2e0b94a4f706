"""All breakers of a deployment: windows of finished requests in, states and incidents out.

Their names: `parameters`, `pool/<name>` and `fallback/<name>`. They are stepped by the clock, never by a request.
Used from the event loop's thread only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping

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
from extproc.windows.trips import TripWindow

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
        self._windows: dict[tuple[str, str], TripWindow] = {}
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
        self._windows = {key: window for key, window in self._windows.items() if key[0] in names}

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
        for sample in samples:
            pool = self._pool_of(sample.cluster)
            role = self._roles.get(pool)
            if role is None:
                continue
            ended = outcome(sample)
            light = role is Role.LIGHT
            names = [POOL + pool] if light else [POOL + pool, FALLBACK + pool]
            if not light and sample.params == dynamic_set:
                names.append(PARAMETERS)
            for name in names:
                self._take(name, pool, sample, ended, probe=sample.probe or light, now=now)

    def _take(self, name: str, pool: str, sample: AccessSample, ended: Outcome, *, probe: bool, now: float) -> None:
        state = self.states[name].state
        if state is State.CLOSED:
            self._window(name, pool).record(sample, ended, now=now)
        elif state is State.HALF_OPEN and probe and ended in (Outcome.OK, Outcome.ERROR):
            slow_s = machine.slow_s(self.config_of(name))
            bad = ended is Outcome.ERROR or (slow_s is not None and sample.total_s > slow_s)
            self.states[name] = machine.probed(self.states[name], good=int(not bad), bad=int(bad))

    def _window(self, name: str, pool: str) -> TripWindow:
        """Of one pool: a thousand good requests of one must not hide another that fails."""
        key = (name, pool)
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
        # Whichever way it went, what was seen before says nothing of what comes.
        self._windows = {key: window for key, window in self._windows.items() if key[0] != name}
        return _incident(name, before, after, seen, wall)

    def _worst(self, name: str, config: BreakerConfig, now: float) -> Seen:
        """The window that trips it, else the one with most errors."""
        windows = [window for key, window in self._windows.items() if key[0] == name]
        seen = [Seen(*window.seen(now=now)) for window in windows]
        tripping = [each for each in seen if machine.tripped(each, config) is not None]
        return max(tripping or seen, key=badness, default=Seen())

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

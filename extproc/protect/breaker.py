"""One breaker, used for pools, for dynamic parameters and for the way to the light model.

    CLOSED ──tripped──▶ OPEN ──waited──▶ HALF_OPEN ──proved──▶ CLOSED
                         ▲                  │
                         └──────failed──────┘

What is not in the table changes nothing. Times are seconds since the epoch, because a breaker that is open outlives
its process and the time that passed meanwhile counts. The rejected alternative, a monotonic clock and starting
over closed, sends everybody to a broken engine with each restart of ours.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from extproc.protect.settings import BreakerConfig, TripRule


class State(StrEnum):
    CLOSED = "closed"  # healthy
    OPEN = "open"
    HALF_OPEN = "half_open"


class Signal(StrEnum):
    """What moves a breaker."""

    TRIPPED = "tripped"  # the window breaks a rule
    WAITED = "waited"  # the back-off is over
    PROVED = "proved"  # enough probes came back well
    FAILED = "failed"  # too many came back badly


TRANSITIONS: dict[tuple[State, Signal], State] = {
    (State.CLOSED, Signal.TRIPPED): State.OPEN,
    (State.OPEN, Signal.WAITED): State.HALF_OPEN,
    (State.HALF_OPEN, Signal.PROVED): State.CLOSED,
    (State.HALF_OPEN, Signal.FAILED): State.OPEN,
}


class Seen(Struct, frozen=True):
    """A window of requests since the breaker closed. `errors`: 5xx or no answer; 4xx, overflow and clients that
    left are neither requests nor errors. `p99_s` None = not known."""

    requests: int = 0
    errors: int = 0
    p99_s: float | None = None


class Breaker(Struct, frozen=True, kw_only=True):
    """`since`: of the state. `until`: when probing begins, while open. `trips`: in a row, for the back-off.

    `good`, `bad`: probes that came back, while half open. `reason`: why it last opened, "" = never.
    """

    state: State = State.CLOSED
    since: float = 0.0
    until: float = 0.0
    trips: int = 0
    good: int = 0
    bad: int = 0
    reason: str = ""


def tripped(seen: Seen, config: BreakerConfig) -> str | None:
    """Why the window trips it, e.g. `error_rate 0.52, p99 1.2 s`; None where it does not."""
    if seen.requests < config.min_requests:
        return None
    return next((why for rule in config.trip if (why := _broken(seen, rule)) is not None), None)


def _broken(seen: Seen, rule: TripRule) -> str | None:
    """Every limit that the rule gives is exceeded."""
    parts = []
    if rule.error_rate is not None:
        rate = seen.errors / seen.requests
        if rate <= rule.error_rate:
            return None
        parts.append(f"error_rate {rate:.2f}")
    if rule.p99_ms is not None:
        if seen.p99_s is None or seen.p99_s * 1000 <= rule.p99_ms:
            return None
        parts.append(f"p99 {seen.p99_s:.2f} s")
    return ", ".join(parts)


def slow_s(config: BreakerConfig) -> float | None:
    """A probe that takes longer is a bad one; None where no rule names a latency."""
    limits = [rule.p99_ms for rule in config.trip if rule.p99_ms is not None]
    return min(limits) / 1000 if limits else None


def probed(breaker: Breaker, *, good: int, bad: int) -> Breaker:
    """With the outcomes of probes; those that come back late, in another state, say nothing of this one."""
    if breaker.state is not State.HALF_OPEN or not (good or bad):
        return breaker
    return replace(breaker, good=breaker.good + good, bad=breaker.bad + bad)


def signal(breaker: Breaker, seen: Seen, config: BreakerConfig, *, now: float) -> tuple[Signal, str] | None:
    """What is to happen and why; None where nothing is."""
    if breaker.state is State.CLOSED:
        why = tripped(seen, config)
        return None if why is None else (Signal.TRIPPED, why)
    if breaker.state is State.OPEN:
        return (Signal.WAITED, "back-off over") if now >= breaker.until else None
    if breaker.bad > config.bad_probes:
        return Signal.FAILED, f"{breaker.bad} of {breaker.good + breaker.bad} probes bad"
    if breaker.good + breaker.bad >= config.probes:
        return Signal.PROVED, f"{breaker.good} of {breaker.good + breaker.bad} probes good"
    # Little traffic brings few probes: then time proves it too.
    if breaker.good and not breaker.bad and now - breaker.since >= config.half_open_s:
        return Signal.PROVED, f"{breaker.good} probes good in {config.half_open_s:g} s"
    return None


def step(
    breaker: Breaker, seen: Seen, config: BreakerConfig, *, now: float, jitter: float
) -> tuple[Breaker, Signal | None]:
    """The breaker at `now` and what moved it. `jitter` in [0, 1) is drawn by the caller."""
    breaker = settled(breaker, config, now=now)
    found = signal(breaker, seen, config, now=now)
    if found is None:
        return breaker, None
    moved, why = found
    return moved_by(breaker, moved, why, config, now=now, jitter=jitter), moved


def moved_by(
    breaker: Breaker, moved: Signal, why: str, config: BreakerConfig, *, now: float, jitter: float
) -> Breaker:
    """As the table says; unchanged where it says nothing."""
    state = TRANSITIONS.get((breaker.state, moved))
    if state is None:
        return breaker
    if state is State.OPEN:
        quiet = breaker.state is State.CLOSED and now - breaker.since > config.max_open_s
        trips = 1 if quiet else breaker.trips + 1
        until = now + back_off_s(trips, config, jitter=jitter)
        return Breaker(state=state, since=now, until=until, trips=trips, reason=why)
    return Breaker(state=state, since=now, trips=breaker.trips, reason=breaker.reason)


def back_off_s(trips: int, config: BreakerConfig, *, jitter: float) -> float:
    """`open_s` doubled with each trip in a row, at most `max_open_s`; then up to `jitter_share` longer, so that
    several sidecars do not probe at one moment."""
    doubled = config.open_s * 2.0 ** min(trips - 1, 30)
    return min(doubled, config.max_open_s) * (1 + config.jitter_share * jitter)


def settled(breaker: Breaker, config: BreakerConfig, *, now: float) -> Breaker:
    """On a clock that stepped back nothing waits longer than it would have at the most."""
    longest = config.max_open_s * (1 + config.jitter_share)
    if breaker.since <= now and breaker.until <= now + longest:
        return breaker
    return replace(breaker, since=min(breaker.since, now), until=min(breaker.until, now + longest))

"""Who breaks the SLO, and for how long that has been so."""

from __future__ import annotations

from msgspec import Struct

from extproc.protect.settings import RollbackConfig, SloConfig


class Standing(Struct, frozen=True):
    """A window of one endpoint. `error_rate` None = no requests; `p99_s`, `mean_s` in seconds."""

    requests: int
    error_rate: float | None
    p99_s: float | None
    mean_s: float | None = None


def breaks(standing: Standing, slo: SloConfig) -> bool:
    """Whether the window breaks the SLO; too few requests break none."""
    if standing.requests < slo.min_requests:
        return False
    slow = standing.p99_s is not None and standing.p99_s * 1000 > slo.p99_ms
    return slow or (standing.error_rate or 0.0) > slo.error_rate


def misses_mean(standing: Standing, slo: SloConfig) -> bool:
    """Whether the mean is above its objective, which is told and never acted on."""
    enough = standing.requests >= slo.min_requests and standing.mean_s is not None
    return enough and (standing.mean_s or 0.0) * 1000 > slo.mean_ms


class BreachClock(Struct, frozen=True):
    """Spans of time (begin, end) in which the SLO was broken, oldest first; monotonic seconds."""

    spans: tuple[tuple[float, float], ...] = ()
    at: float | None = None


def run(clock: BreachClock, config: RollbackConfig, *, breached: bool, now: float) -> BreachClock:
    """The clock at `now`: the time since the look before counts as broken if it is broken at both ends."""
    oldest = now - config.window_s
    spans = [(max(begin, oldest), end) for begin, end in clock.spans if end >= oldest and begin <= now]
    if breached:
        last = spans[-1] if spans else None
        if last is not None and last[1] == clock.at:
            spans[-1] = (last[0], now)
        else:
            spans.append((now, now))
    return BreachClock(tuple(spans), now)


def breached_s(clock: BreachClock) -> float:
    """Seconds of the window in which it was broken."""
    return sum(end - begin for begin, end in clock.spans)


def must_roll_back(clock: BreachClock, affected_share: float, config: RollbackConfig) -> bool:
    """Long enough, and on enough of the endpoints."""
    return config.enabled and breached_s(clock) > config.breach_s and affected_share > config.affected

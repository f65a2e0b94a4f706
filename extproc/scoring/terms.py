"""From a reading to a utility in [0, 1], and how far an old one is believed.

An old reading moves to the median of the pool instead of being dropped or kept: kept, a frozen exporter that
last said "idle" draws the whole pool's traffic; dropped, the endpoint jumps from one formula to another.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite
from statistics import median

from msgspec import Struct

from extproc.scoring.values import EndpointInput, Freshness, Reading, ScoringRules, Term, TermValue

UNKNOWN_NEUTRAL = 0.5
"""What an old term moves to where the pool has no fresh one."""


class Look(Struct, frozen=True, gc=False):
    """A reading that is worth something. `utility` and `belief` in [0, 1]; belief 1 = fresh, 0 = not believed."""

    reading: float
    age_s: float
    utility: float
    belief: float


def free_memory(used: float) -> float | None:
    """1 − used; more than all counts as full, what is no fraction as unknown."""
    return 1 - min(used, 1.0) if 0 <= used < inf else None


def speed(p99_s: float, max_acceptable_s: float) -> float | None:
    """1 − min(p99/max_acceptable, 1); an infinite P99 is as bad as the worst acceptable one."""
    if not (p99_s >= 0 and 0 < max_acceptable_s < inf):
        return None
    return 1 - min(p99_s / max_acceptable_s, 1.0)


def look_at(endpoint: EndpointInput, term: Term, rules: ScoringRules, now: float) -> Look | None:
    reading = endpoint.memory if term is Term.MEMORY else endpoint.p99_s
    if reading is None or not isfinite(reading.at):
        return None
    utility = _utility(endpoint, term, reading)
    if utility is None:
        return None
    age_s = max(0.0, now - reading.at)  # a reading from the future is a clock's doing, not an old one
    return Look(reading.value, age_s, utility, belief(age_s, rules))


def _utility(endpoint: EndpointInput, term: Term, reading: Reading) -> float | None:
    if term is Term.MEMORY:
        return free_memory(reading.value)
    return speed(reading.value, endpoint.max_acceptable_p99_s)


def belief(age_s: float, rules: ScoringRules) -> float:
    """1 until `stale_after_intervals`, then linearly down to 0 at `neutral_after_intervals`."""
    intervals = age_s / rules.interval_s
    if intervals <= rules.stale_after_intervals:
        return 1.0
    if intervals >= rules.neutral_after_intervals:
        return 0.0
    fading = rules.neutral_after_intervals - rules.stale_after_intervals
    return (rules.neutral_after_intervals - intervals) / fading


def neutral(looks: Sequence[Look | None]) -> float:
    """The pool's median of the fresh utilities of a term."""
    fresh = [look.utility for look in looks if look is not None and look.belief == 1]
    return median(fresh) if fresh else UNKNOWN_NEUTRAL


def valued(term: Term, look: Look | None, neutral_utility: float) -> TermValue:
    if look is None:
        return TermValue(term, Freshness.MISSING, None, None, None)
    if look.belief == 1:
        return TermValue(term, Freshness.FRESH, look.reading, look.age_s, look.utility)
    state = Freshness.FADING if look.belief else Freshness.NEUTRAL
    utility = look.belief * look.utility + (1 - look.belief) * neutral_utility
    return TermValue(term, state, look.reading, look.age_s, utility)


def read(endpoints: Sequence[EndpointInput], term: Term, rules: ScoringRules, *, now: float) -> list[TermValue]:
    """One term of all endpoints of a pool."""
    looks = [look_at(endpoint, term, rules, now) for endpoint in endpoints]
    middle = neutral(looks)
    return [valued(term, look, middle) for look in looks]

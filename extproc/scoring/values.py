"""What scoring reads and what it returns.

What there is one of per endpoint is not tracked by the garbage collector, which would cost as much as scoring.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class ScoringRules(Struct, frozen=True, kw_only=True):
    """How readings become weights. All factors are relative to each other, >= 0."""

    memory_weight: float = 0.6  # GPU memory kills requests when it runs out, latency only delays them
    latency_weight: float = 0.4
    interval_s: float = 5.0  # the telemetry tick: ages are counted in it
    stale_after_intervals: float = 3.0  # one or two failed scrapes change nothing
    neutral_after_intervals: float = 6.0  # a frozen exporter says nothing any more
    max_step: float = 0.25  # of the total per tick: a wrong reading cannot move all traffic at once
    min_change: float = 0.01  # of the total: less is noise and not worth a push
    min_change_of_fair: float = 0.1  # of a fair share: in pools above ten endpoints the finer of the two


class Reading(Struct, frozen=True, gc=False):
    """A measured value and when; `at` in the same monotonic seconds as `now`."""

    value: float
    at: float


class EndpointInput(Struct, frozen=True, kw_only=True, gc=False):
    """One endpoint as it stands. `memory`: used fraction in [0, 1]; `p99_s`: seconds. None = not known."""

    key: str
    healthy: bool
    memory: Reading | None = None
    p99_s: Reading | None = None
    max_acceptable_p99_s: float


class Term(StrEnum):
    """What a score is made of."""

    MEMORY = "memory"
    LATENCY = "latency"


class Freshness(StrEnum):
    """How far a reading is believed."""

    FRESH = "fresh"
    FADING = "fading"  # moving to the pool's median
    NEUTRAL = "neutral"  # too old to be believed at all
    MISSING = "missing"


class TermValue(Struct, frozen=True, gc=False):
    """One term of one endpoint. `utility` in [0, 1], higher is better, None = left out; `age_s` in seconds."""

    term: Term
    freshness: Freshness
    reading: float | None
    age_s: float | None
    utility: float | None


class WeightReason(StrEnum):
    """Why a weight is what it is: the first that applies, in this order."""

    DRAINING = "draining"  # unhealthy: no share
    ALONE = "alone"  # the pool has no other: it gets all, whatever is known of it
    LAST_GOOD = "last_good"  # no fresh reading in the pool: the weights before stay
    EQUAL = "equal"  # no fresh reading, and no weights before
    SATURATED = "saturated"  # every score is zero: equal shares
    HELD = "held"  # the change is too small to push
    STEPPED = "stepped"  # on its way: a tick moves no share further
    MEDIAN = "median"  # nothing known of this endpoint: the pool's median score
    STALE = "stale"  # a reading is old and counts less, or not at all
    MISSING = "missing"  # a term is left out
    MEMORY = "memory"  # this term sets it apart from the pool most
    LATENCY = "latency"
    EVEN = "even"  # like the rest of the pool


class EndpointWeight(Struct, frozen=True, kw_only=True, gc=False):
    """One endpoint's share. `score` in [0, 1], None while draining.

    `draining`: no traffic, because it is unhealthy or because its share is zero.
    `moved_by`: the term that sets its score apart from the pool's mean most, whatever the reason says.
    """

    key: str
    weight: int
    draining: bool
    score: float | None
    terms: tuple[TermValue, ...]
    reason: WeightReason
    moved_by: Term | None


class PoolWeights(Struct, frozen=True, kw_only=True):
    """The shares of a pool, in the order of the input; their sum is `total`, 0 if no endpoint is healthy.

    `changed`: the shares differ from the ones before, so that they are to be pushed.
    """

    weights: tuple[EndpointWeight, ...]
    total: int
    saturated: bool
    changed: bool

    @property
    def shares(self) -> dict[str, int]:
        """What the next tick takes as `previous`: without unhealthy endpoints, which come back like new ones."""
        return {each.key: each.weight for each in self.weights if each.reason is not WeightReason.DRAINING}

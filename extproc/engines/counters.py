"""Growth of cumulative counters between two looks, and what is read from it: rates and quantiles.

A counter's own value is never used: after a week of load it says nothing of the last five seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from msgspec import Struct

from extproc.engines.exposition import Point, Points, Wanted

MIN_ELAPSED_S = 0.1
"""Two looks closer than this count as one: a rate over almost no time is noise, or a clock that went back."""

MAX_ELAPSED_S = 300.0
"""An average over more than this is no news of the endpoint, or a clock that went ahead."""


class Counters(Struct, frozen=True):
    """Cumulative values as one look found them; `at` in monotonic seconds. Handed back in at the next look.

    By name and labels, in the order in which an exporter writes them, as one text. The rejected alternative, keys
    of tuples and sets, is half a million objects for a thousand engines, which the collector visits again
    and again.
    """

    at: float
    values: Mapping[str, float]


class Growth(Struct, frozen=True):
    """What counters grew by in `elapsed_s`, as points. Empty where nothing can be said."""

    elapsed_s: float = 0.0
    points: Points = ()


NOTHING = Growth()


def advance(previous: Counters | None, points: Points, wanted: Wanted, *, now: float) -> tuple[Growth, Counters]:
    """Growth since `previous`, and the counters to compare the next look with.

    One counter that fell tells that the engine restarted, and no growth is told for that interval. The rejected
    alternative, Prometheus' rule that a fallen counter grew by its whole value, makes a burst of a million
    out of two servers that answer in turn at one address. A series that is new counts from the next look.
    """
    counted = _counted(points, wanted)
    current = Counters(now, {series: point.value for series, point in counted.items()})
    if previous is None:
        return NOTHING, current
    elapsed_s = now - previous.at
    if 0 <= elapsed_s < MIN_ELAPSED_S:
        return NOTHING, previous
    if not 0 < elapsed_s <= MAX_ELAPSED_S:
        return NOTHING, current
    grown = _grown(previous.values, counted)
    return (NOTHING if grown is None else Growth(elapsed_s, grown)), current


def _counted(points: Points, wanted: Wanted) -> dict[str, Point]:
    cumulative, isfinite = wanted.cumulative, math.isfinite
    return {
        "\0".join((point.name, *point.labels, *point.labels.values())): point
        for point in points
        if point.name in cumulative and isfinite(point.value)
    }


def _grown(before: Mapping[str, float], after: Mapping[str, Point]) -> Points | None:
    grown = []
    for series, point in after.items():
        known = before.get(series)
        if known is None:
            continue
        if point.value < known:
            return None
        grown.append(Point(point.name, point.labels, point.value - known))
    return tuple(grown)


def total(growth: Growth, name: str) -> float | None:
    """Growth of a family over all its series; None where it is not known."""
    found = [point.value for point in growth.points if point.name == name]
    return math.fsum(found) if found else None


def rates(growth: Growth, names: Iterable[str]) -> dict[str, float]:
    """Per second, by name, over all series of a family; a family that is not known is left out."""
    totals = ((name, total(growth, name)) for name in names)
    return {name: grown / growth.elapsed_s for name, grown in totals if grown is not None}


def share(part: float | None, whole: float | None) -> float | None:
    """A fraction in [0, 1]; None where either is not known or nothing happened."""
    if part is None or not whole:
        return None
    return min(max(part / whole, 0.0), 1.0)


def quantile(growth: Growth, histogram: str, q: float) -> float | None:
    """The q-quantile of what a histogram counted in the interval, in its own unit; None where it counted nothing.

    Linear inside a bucket; above the highest bound, that bound (Prometheus' `histogram_quantile`).
    """
    buckets = _buckets(growth, f"{histogram}_bucket")
    if len(buckets) < 2 or buckets[-1][0] != math.inf or buckets[-1][1] <= 0:
        return None
    rank = q * buckets[-1][1]
    low, below = min(0.0, buckets[0][0]), 0.0
    for bound, count in buckets:
        if count >= rank and count > below:
            return low if bound == math.inf else low + (bound - low) * (rank - below) / (count - below)
        low, below = bound, count
    return None


def _buckets(growth: Growth, name: str) -> list[tuple[float, float]]:
    """Upper bounds, ascending, with cumulative counts over all series; made monotone, since exporters race."""
    counts: dict[float, float] = {}
    for point in growth.points:
        bound = _bound(point.labels.get("le", "")) if point.name == name else None
        if bound is not None:
            counts[bound] = counts.get(bound, 0.0) + point.value
    most, buckets = 0.0, []
    for bound in sorted(counts):
        most = max(most, counts[bound])
        buckets.append((bound, most))
    return buckets


def _bound(text: str) -> float | None:
    try:
        bound = float(text)
    except ValueError:
        return None
    return None if math.isnan(bound) else bound

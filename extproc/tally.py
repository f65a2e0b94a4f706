"""Counting on the decision path: a dict look-up and an addition, rendered only when somebody looks.

The rejected alternative, a metrics library's own counters, takes a lock and walks the buckets at each step:
a tenth of all a request costs here. Label values are bounded, so that what clients or configurations vary
can't grow a table. Used from one thread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

MAX_VALUES = 200
"""Different values of one label."""

OTHER = "other"

Labels = tuple[str, ...]


class Bounded:
    """Maps label values to ones that may be kept: after `MAX_VALUES` of a label, the rest is `other`."""

    def __init__(self) -> None:
        self._seen: dict[int, set[str]] = {}

    def admitted(self, values: Labels) -> Labels:
        return tuple(self._admit(label, value) for label, value in enumerate(values))

    def _admit(self, label: int, value: str) -> str:
        seen = self._seen.setdefault(label, set())
        if value in seen:
            return value
        if len(seen) >= MAX_VALUES:
            return OTHER
        seen.add(value)
        return value


class Counts:
    """A counter by labels."""

    def __init__(self) -> None:
        self._counts: dict[Labels, int] = {}
        self._bounded = Bounded()

    def add(self, values: Labels, count: int = 1) -> None:
        known = self._counts.get(values)
        if known is not None:
            self._counts[values] = known + count
            return
        admitted = self._bounded.admitted(values)
        self._counts[admitted] = self._counts.get(admitted, 0) + count

    def items(self) -> Iterator[tuple[Labels, int]]:
        return iter(list(self._counts.items()))

    def take(self) -> dict[Labels, int]:
        """What was counted since the last time."""
        taken, self._counts = self._counts, {}
        return taken


class Buckets:
    """A histogram: `bounds` ascending, inclusive; one more bucket for what lies above."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count

    def add(self, counts: Sequence[int], total: float) -> None:
        """Observations of another histogram with the same bounds."""
        self.counts = [one + other for one, other in zip(self.counts, counts, strict=True)]
        self.total += total

    def cumulative(self) -> list[tuple[float, int]]:
        """(upper bound, observations up to it), ending with infinity."""
        rows, below = [], 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            below += count
            rows.append((bound, below))
        return rows


class BucketsBy:
    """Histograms by labels."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self._series: dict[Labels, Buckets] = {}
        self._bounded = Bounded()

    def at(self, values: Labels) -> Buckets:
        known = self._series.get(values)
        if known is not None:
            return known
        return self._series.setdefault(self._bounded.admitted(values), Buckets(self.bounds))

    def items(self) -> Iterator[tuple[Labels, Buckets]]:
        return iter(list(self._series.items()))

    def take(self) -> dict[Labels, Buckets]:
        """What was observed since the last time."""
        taken, self._series = self._series, {}
        return taken

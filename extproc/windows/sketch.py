"""Quantiles of many values in little memory: logarithmic buckets, as DDSketch has them.

Any quantile is within 1 % of the value that stands there in the sorted data (Masson, Rim, Lee: DDSketch, VLDB
2019). Merging adds counts, so a merged sketch answers as if it had seen every value itself. The rejected
alternatives: a sample of the values, which misses what a P999 is made of, and fixed histogram bounds, whose error
is as wide as a bucket. The lowest buckets are not collapsed when there are many, as DDSketch would: a fixed range
bounds them just as well, and then the order of merges makes no difference.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from math import ceil, log

RELATIVE_ERROR = 0.01

LOWEST = 1e-6
"""At or below this a value counts as 0."""

HIGHEST = 1e6
"""Above this a value counts as this."""

_GROWTH = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
_PER_LOG = 1 / log(_GROWTH)
_CENTRE = 2 / (1 + _GROWTH)

_COUNT_BITS = 32
_COUNT_MASK = (1 << _COUNT_BITS) - 1

MAX_BUCKETS = ceil(log(HIGHEST / LOWEST) * _PER_LOG) + 2


class Sketch:
    """Values >= 0, in whatever unit. `count` and `sum` are exact. Negative values and NaN are not counted."""

    __slots__ = ("_buckets", "_falling", "_falling_at", "_zeros", "count", "sum")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self._falling = array("q")
        self._falling_at = 0
        self._zeros = 0
        self.count = 0
        self.sum = 0.0

    def add(self, value: float) -> None:
        if value > LOWEST:
            value = min(value, HIGHEST)
            bucket = ceil(log(value) * _PER_LOG)
            buckets = self._buckets
            buckets[bucket] = buckets.get(bucket, 0) + 1
        elif value >= 0:
            self._zeros += 1
        else:
            return
        self.count += 1
        self.sum += value

    def merge(self, other: Sketch) -> None:
        """Add what the other one has seen."""
        buckets = self._buckets
        for bucket, count in other._buckets.items():
            buckets[bucket] = buckets.get(bucket, 0) + count
        self._zeros += other._zeros
        self.count += other.count
        self.sum += other.sum

    @property
    def mean(self) -> float | None:
        return self.sum / self.count if self.count else None

    @property
    def buckets(self) -> int:
        """Buckets in use, at most `MAX_BUCKETS`."""
        return len(self._buckets)

    def quantile(self, share: float) -> float | None:
        """`share` in [0, 1]; None where nothing was seen."""
        return self.quantiles((share,))[0]

    def quantiles(self, shares: Sequence[float]) -> list[float | None]:
        """One value for each share, in one pass; shares ascend. All None where nothing was seen.

        Nearest rank: the least value that so large a share of all values does not exceed.
        """
        if not self.count:
            return [None] * len(shares)
        found: list[float | None] = []
        buckets = iter(sorted(self._buckets.items()))
        bucket, below = None, self._zeros
        for share in shares:
            rank = _rank(share, self.count)
            while below < rank:
                bucket, count = next(buckets)
                below += count
            found.append(0.0 if bucket is None else _CENTRE * _GROWTH**bucket)
        return found

    def falling(self) -> array[int]:
        """Buckets above zero, the highest first, each as `bucket << 32 | count`: one number sorts faster than two.

        Kept until the next value comes, so that a sketch that is complete is sorted once.
        """
        if self._falling_at != self.count:
            packed = [bucket << _COUNT_BITS | count for bucket, count in self._buckets.items()]
            self._falling = array("q", sorted(packed, reverse=True))
            self._falling_at = self.count
        return self._falling


def merged(sketches: Iterable[Sketch]) -> Sketch:
    """A new sketch that has seen what all of them have."""
    whole = Sketch()
    for sketch in sketches:
        whole.merge(sketch)
    return whole


def upper_quantile(sketches: Sequence[Sketch], share: float) -> float | None:
    """What `merged(sketches).quantile(share)` says, found from the top: a tenth of the work for shares near 1."""
    count = sum(sketch.count for sketch in sketches)
    if not count:
        return None
    above = count - _rank(share, count)
    highest: list[int] = []
    for sketch in sketches:
        highest += sketch.falling()[: above + 1]  # a bucket holds at least one value
    for packed in sorted(highest, reverse=True):
        above -= packed & _COUNT_MASK
        if above < 0:
            return float(_CENTRE * _GROWTH ** (packed >> _COUNT_BITS))
    return 0.0


def _rank(share: float, count: int) -> int:
    # 0.07 * 100 is a little more than 7, and still the seventh value is meant.
    return min(count, max(1, ceil(share * count - 1e-9)))

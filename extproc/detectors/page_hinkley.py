"""Page-Hinkley: a sequential look for a rise, cheap enough for every value, quick enough for a first warning.

What goes in are ranks against the baseline, in [0, 1] and uniform there while nothing changes, whatever the shape
of the latencies: a heavy tail is no alarm. m_t = sum of (x_i - 1/2 - delta), an alarm is m_t - min m > threshold
(Page, Biometrika 1954; Hinkley, Biometrika 1971).

For uniform ranks the excursion above the running minimum of a walk with drift -delta and variance 1/12 exceeds h
with a chance of about exp(-24 delta h) per excursion (Siegmund, Sequential Analysis, 1985): with delta 0.1 and h
12 that is 3e-13, so that a day of 10^7 requests brings none.
"""

from __future__ import annotations

from msgspec import Struct

DELTA = 0.1
"""Ranks that rise by less than this on average are let be."""

THRESHOLD = 12.0


class PageHinkley(Struct, frozen=True):
    """`total` - `least` is how far it has risen."""

    total: float = 0.0
    least: float = 0.0
    seen: int = 0

    @property
    def risen(self) -> float:
        return self.total - self.least

    @property
    def alarm(self) -> bool:
        return self.risen > THRESHOLD


def updated(state: PageHinkley, rank: float) -> PageHinkley:
    """With one more value's rank in [0, 1]."""
    total = state.total + rank - 0.5 - DELTA
    return PageHinkley(total, min(state.least, total), state.seen + 1)

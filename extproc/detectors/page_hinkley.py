"""Page-Hinkley: a sequential look for a rise, cheap enough for every value, quick enough for a first warning.

What goes in are ranks against the baseline, in [0, 1] and uniform there while nothing changes, whatever the shape
of the latencies: a heavy tail is no alarm. m_t = sum of (x_i - 1/2 - delta), an alarm is m_t - min m > threshold
(Page, Biometrika 1954; Hinkley, Biometrika 1971).

For uniform ranks the excursion above the running minimum of a walk with drift -delta and variance 1/12 exceeds h
with a chance of about exp(-24 delta h) per excursion (Siegmund, Sequential Analysis, 1985): with delta 0.1 and h
12 that is 3e-13, so that a day of 10^7 requests brings none.
"""

from __future__ import annotations

DELTA = 0.1
"""Ranks that rise by less than this on average are let be."""

THRESHOLD = 12.0


class PageHinkley:
    """`risen`: how far the sum stands above its lowest point. Fed with every value, so nothing is made anew for
    it."""

    __slots__ = ("risen", "seen")

    def __init__(self) -> None:
        self.risen = 0.0
        self.seen = 0

    @property
    def alarm(self) -> bool:
        return self.risen > THRESHOLD

    def add(self, rank: float) -> None:
        """One more value's rank in [0, 1]."""
        # The minimum is 0 here: what is kept is the distance from it.
        self.seen += 1
        self.risen = max(0.0, self.risen + rank - 0.5 - DELTA)

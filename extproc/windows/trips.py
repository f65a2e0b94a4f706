"""What a breaker looks at: requests that worked, those that did not, and how long they took.

A 4xx counts for nothing: a client that sends a thousand bad requests must neither open a breaker nor hide an engine
that fails.
"""

from __future__ import annotations

from collections.abc import Iterable

from extproc.model.telemetry import AccessSample
from extproc.windows.expiring import Expiring
from extproc.windows.outcome import TIMEOUTS, Outcome
from extproc.windows.sketch import Sketch, upper_quantile

SLOTS = 12


class _Slot:
    __slots__ = ("errors", "ok", "total")

    def __init__(self) -> None:
        self.ok = 0
        self.errors = 0
        self.total = Sketch()


class TripWindow:
    """Requests of the last `window_s` seconds."""

    __slots__ = ("_slots",)

    def __init__(self, window_s: float) -> None:
        self._slots = Expiring(_Slot, window_s=window_s, slots=SLOTS)

    def record(self, sample: AccessSample, ended: Outcome, *, now: float) -> None:
        if ended == Outcome.OK:
            slot = self._slots.at(now=now)
            slot.ok += 1
            slot.total.add(sample.total_s)
        elif ended == Outcome.ERROR:
            slot = self._slots.at(now=now)
            slot.errors += 1
            if not TIMEOUTS.isdisjoint(sample.flags):
                slot.total.add(sample.total_s)

    def since(self, since: float, *, now: float) -> list[_Slot]:
        """What to count of the time from `since` on, to within a slot."""
        return self._slots.since(since, now=now)


def counted(slots: Iterable[_Slot]) -> tuple[int, int, float | None]:
    """(requests, errors among them, P99 in seconds or None)."""
    live = list(slots)
    errors = sum(slot.errors for slot in live)
    return errors + sum(slot.ok for slot in live), errors, upper_quantile([slot.total for slot in live], 0.99)

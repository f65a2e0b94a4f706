"""Values in slots of time that expire by themselves: a window that slides in steps.

A read at `now` leaves out what is too old and mutates nothing: looking often or never gives the same answer. The
rejected alternative, a running total that old values are subtracted from, drifts below zero with the first value
that is subtracted twice; here nothing is ever subtracted.

The clock may jump. Forwards, all is old. Backwards by less than the window, what lies ahead is hidden until the
clock has come there; by more, the next write forgets it: it would come back long after its time.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Generic, TypeVar

V = TypeVar("V")


class Expiring(Generic[V]):
    """`slots` values over `window_s` seconds, each made by `new` when first written to.

    What is read is at most `window_s` old, and what is younger than `window_s` less one slot is always read.
    """

    __slots__ = ("_new", "_slot_s", "_slots", "_values")

    def __init__(self, new: Callable[[], V], *, window_s: float, slots: int) -> None:
        self._new = new
        self._slots = slots
        self._slot_s = window_s / slots
        self._values: dict[int, V] = {}

    def at(self, *, now: float) -> V:
        """The value of this moment's slot, to be added to."""
        tick = int(now // self._slot_s)
        value = self._values.get(tick)
        return self._begin(tick) if value is None else value

    def _begin(self, tick: int) -> V:
        near = self._slots
        self._values = {at: value for at, value in self._values.items() if -near < at - tick < near}
        value = self._values[tick] = self._new()
        return value

    def live(self, *, now: float) -> list[V]:
        """The values of the window that ends `now`, oldest first."""
        return self._between(0, int(now // self._slot_s))

    def since(self, since: float, *, now: float) -> list[V]:
        """Those of slots that began at `since` or later: nothing older is among them, nothing younger than one
        slot after `since` is missed as long as it is in the window."""
        tick = int(now // self._slot_s)
        newer = ceil(since / self._slot_s) - (tick - self._slots + 1)
        return self._between(max(0, newer), tick)

    def _between(self, skipped: int, tick: int) -> list[V]:
        """Slots of the window that ends with `tick`, without the `skipped` oldest."""
        values = self._values
        ticks = range(tick - self._slots + 1 + skipped, tick + 1)
        return [values[at] for at in ticks if at in values]

"""Uniform samples of latencies: of a sliding window, and of all since a beginning. Bounded, seeded, O(1) a value.

Which values are kept is drawn from a counter-based generator (SplitMix64; Steele, Lea, Flood, OOPSLA 2014), so
that the same stream under the same seed keeps the same values. Sampling is Algorithm R (Vitter, ACM TOMS 1985).
"""

from __future__ import annotations

from array import array

from extproc.windows.expiring import Expiring

MAX_SAMPLES = 4096
SLOTS = 6
_MASK = (1 << 64) - 1


def mixed(value: int) -> int:
    """64 bits that look random, the same for the same value."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


class Reservoir:
    """A uniform sample of at most `size` of all values added; `seen` counts those."""

    __slots__ = ("_seed", "_size", "seen", "values")

    def __init__(self, size: int, seed: int) -> None:
        self._size = size
        self._seed = seed
        self.seen = 0
        self.values = array("d")

    def add(self, value: float) -> None:
        self.seen += 1
        if len(self.values) < self._size:
            self.values.append(value)
            return
        place = mixed(self._seed + self.seen) % self.seen
        if place < self._size:
            self.values[place] = value


class WindowSample:
    """Of the last `window_s` seconds, in slots that expire."""

    __slots__ = ("_seed", "_slots", "last_at")

    def __init__(self, window_s: float, seed: int) -> None:
        self._seed = seed
        self._slots = Expiring(self._slot, window_s=window_s, slots=SLOTS)
        self.last_at: float | None = None

    def _slot(self) -> Reservoir:
        self._seed = mixed(self._seed)
        return Reservoir(MAX_SAMPLES, self._seed)

    def add(self, value: float, *, now: float) -> None:
        self.last_at = now
        self._slots.at(now=now).add(value)

    def view(self, *, now: float) -> tuple[tuple[int, tuple[float, ...]], ...]:
        """What each live slot saw, and its sample: copied, for another thread to merge."""
        return tuple((slot.seen, tuple(slot.values)) for slot in self._slots.live(now=now) if slot.values)

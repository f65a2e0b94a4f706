"""What went through lately: requests per second by tier and class, and the last ones. Never any text of them.

Used from the event loop's thread only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from msgspec import Struct

from extproc.model.telemetry import AccessSample
from extproc.windows.expiring import Expiring
from extproc.windows.outcome import Outcome, outcome

RATE_WINDOW_S = 10.0
RATE_SLOTS = 10
MAX_KINDS = 64
"""Pairs of tier and class; there are a dozen, more would come from a foreign Envoy."""

LAST = 12


class Passed(Struct, frozen=True):
    """One finished request. `at` in seconds since the epoch."""

    at: float
    pool: str
    outcome: Outcome
    sample: AccessSample


class _Count:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Recent:
    """`pool_of` names the pool of an Envoy cluster."""

    def __init__(self, pool_of: Callable[[str], str]) -> None:
        self._pool_of = pool_of
        self._kinds: dict[tuple[str, str], Expiring[_Count]] = {}
        self._last: deque[Passed] = deque(maxlen=LAST)

    def finished(self, samples: Iterable[AccessSample], *, now: float, wall: float) -> None:
        """`now` in monotonic seconds, `wall` in seconds since the epoch."""
        for sample in samples:
            self._last.append(Passed(wall, self._pool_of(sample.cluster), outcome(sample), sample))
            kind = self._kind((sample.tier, sample.request_class))
            if kind is not None:
                kind.at(now=now).value += 1

    def _kind(self, key: tuple[str, str]) -> Expiring[_Count] | None:
        known = self._kinds.get(key)
        if known is None and len(self._kinds) < MAX_KINDS:
            known = self._kinds[key] = Expiring(_Count, window_s=RATE_WINDOW_S, slots=RATE_SLOTS)
        return known

    def rates(self, *, now: float) -> dict[tuple[str, str], float]:
        """Requests per second by (tier, class), 0 for those that were seen before the window."""
        counts = {key: sum(count.value for count in kind.live(now=now)) for key, kind in self._kinds.items()}
        return {key: count / RATE_WINDOW_S for key, count in sorted(counts.items())}

    def last(self) -> list[Passed]:
        """The newest first."""
        return list(reversed(self._last))

"""What requests were like lately, at one endpoint or in one group of them.

Durations are those of answers that worked, and of timeouts, which lasted at least so long. The rejected
alternative, durations of everything, makes a broken engine the fastest of all: a refusal takes a millisecond.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, TypeVar

from msgspec import Struct

from extproc.model.telemetry import AccessSample
from extproc.windows.expiring import Expiring
from extproc.windows.outcome import TIMEOUTS, Outcome
from extproc.windows.sketch import Sketch, upper_quantile

K = TypeVar("K", bound=Hashable)

SHARES = (0.5, 0.95, 0.99, 0.999)


class LatencyReading(Struct, frozen=True, kw_only=True):
    """A window as it stands at one moment. Durations in seconds, None = no request told.

    `requests`: answered by the engine, or owed an answer by it; `errors` of them: 5xx or none. Not among them are
    those that `cancelled` (by the client) and `overflow` (of Envoy's limits) count. `error_rate` in [0, 1], None
    without requests. `first_byte_*`: until the engine's first byte. `last_at`: the last request's time of arrival
    here, on the clock of `now`, however long ago.
    """

    requests: int
    errors: int
    cancelled: int
    overflow: int
    error_rate: float | None
    mean_s: float | None
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None
    p999_s: float | None
    first_byte_mean_s: float | None
    first_byte_p50_s: float | None
    first_byte_p95_s: float | None
    first_byte_p99_s: float | None
    last_at: float | None


class Tail(Struct, frozen=True, gc=False):
    """The slow end alone, for whoever asks about every endpoint at each tick: `timed` durations and their P99.

    `last_at`: as in `LatencyReading`.
    """

    timed: int
    p99_s: float | None
    last_at: float | None


class _Slot:
    __slots__ = ("first_byte", "outcomes", "total")

    def __init__(self) -> None:
        self.total = Sketch()
        self.first_byte = Sketch()
        self.outcomes = [0] * len(Outcome)

    def merge(self, other: _Slot) -> None:
        self.total.merge(other.total)
        self.first_byte.merge(other.first_byte)
        self.outcomes = [mine + its for mine, its in zip(self.outcomes, other.outcomes, strict=True)]


class LatencyWindow:
    """The requests of the last `window_s`, in `slots` steps. `last_at`: when the last one was recorded."""

    __slots__ = ("_slots", "last_at")

    def __init__(self, *, window_s: float = 60.0, slots: int = 12) -> None:
        self._slots = Expiring(_Slot, window_s=window_s, slots=slots)
        self.last_at: float | None = None

    def record(self, sample: AccessSample, ended: Outcome, *, now: float) -> None:
        """`ended`: the sample's outcome, computed once for all the windows it goes to."""
        slot = self._slots.at(now=now)
        self.last_at = now
        slot.outcomes[ended] += 1
        if ended == Outcome.OK or (ended == Outcome.ERROR and not TIMEOUTS.isdisjoint(sample.flags)):
            slot.total.add(sample.total_s)
        if sample.first_byte_s is not None and ended in _ANSWERING:
            slot.first_byte.add(sample.first_byte_s)

    def reading(self, *, now: float) -> LatencyReading:
        return _merged([self], now=now)

    def live(self, *, now: float) -> list[_Slot]:
        """Its slots that are young enough to be read, oldest first."""
        return self._slots.live(now=now)

    def tail(self, *, now: float) -> Tail:
        """The same P99 as in `reading`."""
        totals = [slot.total for slot in self._slots.live(now=now)]
        return Tail(sum(total.count for total in totals), upper_quantile(totals, 0.99), self.last_at)


_ANSWERING = frozenset({Outcome.OK, Outcome.CANCELLED})
"""Whose first byte tells how fast the engine is: who left during the answer has seen it begin."""


def _merged(windows: Iterable[LatencyWindow], *, now: float) -> LatencyReading:
    whole, last_at = _Slot(), None
    for window in windows:
        for slot in window.live(now=now):
            whole.merge(slot)
        if window.last_at is not None:
            last_at = window.last_at if last_at is None else max(last_at, window.last_at)
    return _reading(whole, last_at)


def _reading(whole: _Slot, last_at: float | None) -> LatencyReading:
    ok, client_errors, errors, cancelled, overflow, _ = whole.outcomes
    requests = ok + client_errors + errors
    p50, p95, p99, p999 = whole.total.quantiles(SHARES)
    first_byte = whole.first_byte.quantiles(SHARES[:3])
    return LatencyReading(
        requests=requests,
        errors=errors,
        cancelled=cancelled,
        overflow=overflow,
        error_rate=errors / requests if requests else None,
        mean_s=whole.total.mean,
        p50_s=p50,
        p95_s=p95,
        p99_s=p99,
        p999_s=p999,
        first_byte_mean_s=whole.first_byte.mean,
        first_byte_p50_s=first_byte[0],
        first_byte_p95_s=first_byte[1],
        first_byte_p99_s=first_byte[2],
        last_at=last_at,
    )


class LatencyWindows(Generic[K]):
    """A window per key, for at most `limit` keys; the rest share the one of `other`.

    Keys that went silent make room for new ones: a renamed route does not hold its place for ever.
    """

    def __init__(self, *, other: K, limit: int = 1024, window_s: float = 60.0, slots: int = 12) -> None:
        self._other = other
        self._limit = limit
        self._window_s = window_s
        self._slots = slots
        self._windows: dict[K, LatencyWindow] = {}
        self._pruned_at = float("-inf")

    def record(self, key: K, sample: AccessSample, ended: Outcome, *, now: float) -> None:
        window = self._windows.get(key)
        if window is None:
            window = self._open(key, now)
        window.record(sample, ended, now=now)

    def _open(self, key: K, now: float) -> LatencyWindow:
        if self._full():
            self._prune(now)
        if self._full():
            key = self._other
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = LatencyWindow(window_s=self._window_s, slots=self._slots)
        return window

    def _full(self) -> bool:
        return len(self._windows) - (self._other in self._windows) >= self._limit

    def _prune(self, now: float) -> None:
        # Once a slot: a flood of new keys costs a look at all of them that often, not once a request.
        if abs(now - self._pruned_at) < self._window_s / self._slots:
            return
        self._pruned_at = now
        self._windows = {key: window for key, window in self._windows.items() if not self._silent(window, now)}

    def _silent(self, window: LatencyWindow, now: float) -> bool:
        return window.last_at is None or abs(now - window.last_at) > self._window_s

    def reading(self, key: K, *, now: float) -> LatencyReading:
        """Of one key; nothing but None and 0 where there was no request of it."""
        window = self._windows.get(key)
        return UNSEEN if window is None else window.reading(now=now)

    def merged(self, keys: Iterable[K], *, now: float) -> LatencyReading:
        """Of several keys as if they were one; those that share the window of `other` are not among them."""
        return _merged((self._windows[key] for key in keys if key in self._windows), now=now)

    def forget(self, key: K) -> None:
        """As if there had been no request of it."""
        self._windows.pop(key, None)

    def readings(self, *, now: float) -> Iterator[tuple[K, LatencyReading]]:
        """Of every key that is known."""
        for key, window in self._windows.items():
            yield key, window.reading(now=now)


UNSEEN, NO_TAIL = _reading(_Slot(), None), Tail(0, None, None)
"""What is known without any request."""

"""An engine as arithmetic: slots with one queue, memory that grows with requests in flight, and a bad day.

Pure, with `now`. When a request is done is known when it comes in, since who came first is served first.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace

from bench.weights.scenario import Degraded, Memory


class EngineModel:
    """`degraded_at`: from then on `degraded` holds; None = never. Times in seconds of one clock."""

    def __init__(self, slots: int, memory: Memory, degraded: Degraded, degraded_at: float | None) -> None:
        self._free_at = [0.0] * slots
        self._ends: list[float] = []
        self._memory = memory
        self._degraded = degraded
        self._degraded_at = float("inf") if degraded_at is None else degraded_at

    def take(self, service_s: float, *, now: float) -> float | None:
        """When a request that comes in is done; None where the memory does not hold it."""
        if self.used_mib(now=now) + self._memory.per_request_mib > self.total_mib(now=now):
            return None
        starts = max(now, self._free_at[0])
        slower = self._degraded.slower if starts >= self._degraded_at else 1.0
        ends = starts + service_s * slower
        heapreplace(self._free_at, ends)
        heappush(self._ends, ends)
        return ends

    def in_flight(self, *, now: float) -> int:
        """Running and waiting."""
        while self._ends and self._ends[0] <= now:
            heappop(self._ends)
        return len(self._ends)

    def used_mib(self, *, now: float) -> float:
        return self._memory.weights_mib + self._memory.per_request_mib * self.in_flight(now=now)

    def total_mib(self, *, now: float) -> float:
        return self._memory.total_mib * (self._degraded.memory if now >= self._degraded_at else 1.0)

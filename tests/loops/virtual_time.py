"""A clock that moves when a test says so, and the sleepers that wake by it."""

from __future__ import annotations

import asyncio
import heapq
from itertools import count

SETTLE = 30
"""Turns of the event loop that woken tasks get before time moves on."""


class Time:
    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.jumped = 0.0
        """How far the clock stands from the time that sleepers wake by."""
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._number = count()

    def clock(self) -> float:
        return self.now + self.jumped

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now + seconds, next(self._number), future))
        await future

    async def advance(self, seconds: float) -> None:
        """Wake every sleeper of the time that passes, each at its own time."""
        end = self.now + seconds
        await self.settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            at, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                self.now = max(self.now, at)
                future.set_result(None)
                await self.settle()
        self.now = end

    async def settle(self) -> None:
        for _ in range(SETTLE):
            await asyncio.sleep(0)

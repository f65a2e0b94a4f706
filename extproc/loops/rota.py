"""Visits many things again and again, each at its own time, a bounded number at once.

Each thing has a task that sleeps: a visit that hangs delays no other one. The rejected alternative, one round
over all of them, is as slow as its slowest and sends every request in the same instant. What failed at its last
visit waits for slots of its own, since a hundred dead engines would otherwise hold all slots until they time out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar

from extproc.loops.tasks import Clock, spawn

T = TypeVar("T")

Sleep = Callable[[float], Awaitable[None]]
Random = Callable[[], float]
"""A number in [0, 1)."""

JITTER = 0.1
"""Of the interval, in both directions: many programs started together drift apart."""


class Rota(Generic[T]):
    """`visit` tells whether all was well; it bounds its own time and raises nothing. Used by one event loop."""

    def __init__(
        self,
        *,
        visit: Callable[[str, T], Awaitable[bool]],
        interval_s: float,
        slots: int,
        clock: Clock,
        sleep: Sleep,
        random: Random,
    ) -> None:
        self._visit = visit
        self._clock = clock
        self._sleep = sleep
        self._random = random
        self._members: dict[str, T] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self.pace(interval_s=interval_s, slots=slots)

    def pace(self, *, interval_s: float, slots: int) -> None:
        """From here on visit so often, so many at once; the next visits fall anywhere in an interval."""
        self._interval_s = interval_s
        self._well, self._unwell = asyncio.Semaphore(slots), asyncio.Semaphore(slots)
        for task in self._tasks.values():
            task.cancel()
        for key in self._members:
            self._start(key)

    def assign(self, members: Mapping[str, T]) -> frozenset[str]:
        """From here on visit these; the keys that left or changed, of which a running visit is broken off."""
        gone = frozenset(key for key, member in self._members.items() if members.get(key) != member)
        for key in gone:
            if (task := self._tasks.pop(key, None)) is not None:
                task.cancel()
        self._members = dict(members)
        for key in members.keys() - self._tasks.keys():
            self._start(key)
        return gone

    async def run(self) -> None:
        """Visit until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                for key in self._members:
                    self._start(key)
                await asyncio.Event().wait()
            finally:
                self._group = None
                self._tasks.clear()

    def _start(self, key: str) -> None:
        if self._group is not None:
            turns = self._turns(key, self._members[key])
            self._tasks[key] = spawn(self._group, turns, name=f"visit {key}")

    async def _turns(self, key: str, member: T) -> None:
        """The first visit falls anywhere in the first interval."""
        due, well = self._clock() + self._random() * self._interval_s, True
        while True:
            await self._sleep(self._wait_s(due))
            begun = self._clock()
            async with self._well if well else self._unwell:
                well = await self._visit(key, member)
            due = begun + self._interval_s * (1 + JITTER * (2 * self._random() - 1))

    def _wait_s(self, due: float) -> float:
        """Never longer than an interval takes, whatever became of the clock."""
        return min(max(0.0, due - self._clock()), self._interval_s * (1 + JITTER))

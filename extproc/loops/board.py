"""The current snapshot, and a way to wait for the next one.

Whoever handles a request reads `current` once and keeps what it got. Waiters see the latest snapshot,
not each one: a slow waiter skips generations instead of queueing them.
"""

from __future__ import annotations

import asyncio

from extproc.snapshot import Snapshot


class Board:
    """Used from the event loop's thread only."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._current = snapshot
        self._changed = asyncio.Event()
        self._publishes = 0

    @property
    def current(self) -> Snapshot:
        return self._current

    @property
    def publishes(self) -> int:
        """How often `publish` replaced the snapshot; the first one is not counted."""
        return self._publishes

    def publish(self, snapshot: Snapshot) -> None:
        """Replace the current snapshot and wake all waiters. Generations only grow."""
        if snapshot.generation <= self._current.generation:
            raise ValueError(f"generation {snapshot.generation} does not follow {self._current.generation}")
        self._current = snapshot
        self._publishes += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def next(self, seen_generation: int) -> Snapshot:
        """The current snapshot as soon as it is newer than `seen_generation`."""
        while self._current.generation <= seen_generation:
            await self._changed.wait()
        return self._current

"""The current value of something that is published as a whole, and a way to wait for the next one.

Whoever handles a request reads `current` once and keeps what it got. Waiters see the latest value, not each one: a
slow waiter skips generations instead of queueing them.
"""

from __future__ import annotations

import asyncio
from typing import Generic, Protocol, TypeVar


class Published(Protocol):
    """A value that replaces the one before it as a whole; `generation` grows with each."""

    @property
    def generation(self) -> int: ...


T = TypeVar("T", bound=Published)


class Board(Generic[T]):
    """Used from the event loop's thread only."""

    def __init__(self, value: T) -> None:
        self._current = value
        self._changed = asyncio.Event()
        self._publishes = 0

    @property
    def current(self) -> T:
        return self._current

    @property
    def publishes(self) -> int:
        """How often `publish` replaced the value; the first one is not counted."""
        return self._publishes

    def publish(self, value: T) -> int:
        """Replace the current value and wake all waiters. Generations only grow; the one that is current now."""
        if value.generation <= self._current.generation:
            raise ValueError(f"generation {value.generation} does not follow {self._current.generation}")
        self._current = value
        self._publishes += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        return value.generation

    async def next(self, seen_generation: int) -> T:
        """The current value as soon as it is newer than `seen_generation`."""
        while self._current.generation <= seen_generation:
            await self._changed.wait()
        return self._current

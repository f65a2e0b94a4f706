"""Tasks that cannot get lost, and the clocks.

A task lives in a group, so its failure ends the group. The rejected alternative, a bare
`asyncio.create_task`, keeps running half a program after one loop of it has died unseen.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

BEAT_S = 1.0

Clock = Callable[[], float]
"""Seconds. Wall clocks count from the epoch; monotonic ones from an unknown point."""


def wall() -> float:
    return time.time()


def monotonic() -> float:
    return time.monotonic()


def pause(seconds: float) -> None:
    """In a thread: let others run."""
    time.sleep(seconds)


def spawn(group: asyncio.TaskGroup, coro: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
    """Run `coro` in the group under a name that logs and debuggers show.

    A group that is shutting down takes no tasks: RuntimeError, and the coroutine is closed, not left behind.
    """
    try:
        return group.create_task(coro, name=name)
    except RuntimeError:
        coro.close()
        raise


@contextlib.asynccontextmanager
async def beating(beat: Callable[[], None]) -> AsyncIterator[None]:
    """`beat` is called each second, for as long as the event loop turns."""
    loop = asyncio.get_running_loop()
    due: asyncio.TimerHandle | None = None

    def again() -> None:
        nonlocal due
        beat()
        due = loop.call_later(BEAT_S, again)

    again()
    try:
        yield
    finally:
        if due is not None:
            due.cancel()

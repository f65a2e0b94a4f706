"""Tasks stay in their group, and end it when they fail."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from extproc.loops.tasks import monotonic, spawn, wall


async def test_the_group_waits_for_the_task_and_the_task_has_the_name() -> None:
    async def named() -> str:
        await asyncio.sleep(0)
        current = asyncio.current_task()
        assert current is not None
        return current.get_name()

    async with asyncio.TaskGroup() as group:
        task = spawn(group, named(), name="reload")
    assert task.result() == "reload"


async def test_a_failing_task_ends_the_group() -> None:
    cancelled = asyncio.Event()

    async def fails() -> None:
        raise OSError("gone")

    async def waits() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.TaskGroup() as group:
            spawn(group, waits(), name="waits")
            await asyncio.sleep(0)
            spawn(group, fails(), name="fails")
    assert [str(error) for error in caught.value.exceptions] == ["gone"]
    assert cancelled.is_set()


async def test_a_group_that_has_ended_takes_no_task_and_the_coroutine_is_closed() -> None:
    async def never() -> None:
        raise AssertionError("must not run")

    async with asyncio.TaskGroup() as group:
        pass
    coro: Any = never()
    with pytest.raises(RuntimeError):
        spawn(group, coro, name="late")
    assert coro.cr_frame is None  # closed: no "never awaited" warning later


def test_the_clocks_are_in_seconds() -> None:
    assert abs(wall() - time.time()) < 5
    assert abs(monotonic() - time.monotonic()) < 5

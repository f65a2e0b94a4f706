"""The board: one current value, and waiters that see the latest."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from extproc.loops.board import Board
from extproc.model.xds import NOTHING, Encoded
from extproc.snapshot import Limits, Snapshot


def snapshot(generation: int) -> Snapshot:
    nothing = cast(Any, None)
    return Snapshot(
        generation=generation,
        parameter_set=f"set@{generation}",
        parameters=nothing,
        registry=nothing,
        trust=nothing,
        tenants=nothing,
        classifiers=(),
        limits=Limits(max_body_bytes=1, max_keys=1),
        lowest_latency_paths=(),
        encoded_bodies_pass=False,
        safe=nothing,
        safe_set="safe@0",
        degrade=nothing,
        fallback=nothing,
    )


async def test_anything_with_a_generation_can_be_published() -> None:
    board = Board(NOTHING)
    waiting = asyncio.create_task(board.next(0))
    await asyncio.sleep(0)
    board.publish(Encoded(3))
    assert await asyncio.wait_for(waiting, 1) == Encoded(3)


async def test_publish_replaces_and_counts() -> None:
    first, second = snapshot(1), snapshot(2)
    board = Board(first)
    assert board.current is first
    assert board.publishes == 0
    board.publish(second)
    assert board.current is second
    assert board.publishes == 1


@pytest.mark.parametrize("generation", [0, 1, 2])
async def test_a_generation_that_does_not_grow_is_refused(generation: int) -> None:
    board = Board(snapshot(2))
    with pytest.raises(ValueError, match="does not follow 2"):
        board.publish(snapshot(generation))
    assert board.current.generation == 2
    assert board.publishes == 0


async def test_next_returns_at_once_when_there_is_a_newer_one() -> None:
    board = Board(snapshot(3))
    assert (await asyncio.wait_for(board.next(2), 1)).generation == 3


async def test_next_waits_while_there_is_none() -> None:
    board = Board(snapshot(1))
    waiting = asyncio.create_task(board.next(1))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    board.publish(snapshot(2))
    assert (await asyncio.wait_for(waiting, 1)).generation == 2


async def test_next_waits_for_a_generation_that_is_new_to_the_caller() -> None:
    board = Board(snapshot(1))
    waiting = asyncio.create_task(board.next(2))
    await asyncio.sleep(0)
    board.publish(snapshot(2))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    board.publish(snapshot(3))
    assert (await asyncio.wait_for(waiting, 1)).generation == 3


async def test_all_waiters_wake_and_a_slow_one_skips_generations() -> None:
    board = Board(snapshot(1))
    seen: list[list[int]] = [[], [], []]

    async def follow(generations: list[int]) -> None:
        generation = 1
        while generation < 4:
            generation = (await board.next(generation)).generation
            generations.append(generation)

    tasks = [asyncio.create_task(follow(generations)) for generations in seen]
    await asyncio.sleep(0)
    board.publish(snapshot(2))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    board.publish(snapshot(3))
    board.publish(snapshot(4))
    await asyncio.wait_for(asyncio.gather(*tasks), 1)
    assert seen == [[2, 4]] * 3


async def test_a_cancelled_waiter_disturbs_no_other() -> None:
    board = Board(snapshot(1))
    leaves, stays = (asyncio.create_task(board.next(1)) for _ in range(2))
    await asyncio.sleep(0)
    leaves.cancel()
    await asyncio.sleep(0)
    board.publish(snapshot(2))
    assert (await asyncio.wait_for(stays, 1)).generation == 2

"""Who is visited when, and that nobody waits for one that hangs."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from extproc.loops.rota import Rota
from tests.loops.virtual_time import Time


class World:
    def __init__(self, *, slots: int = 8, draw: Callable[[], float] | None = None) -> None:
        self.time = Time()
        self.visits: list[tuple[float, str]] = []
        self.ill: set[str] = set()
        self.hanging: set[str] = set()
        self.takes_s = 0.0
        self.inside = self.most_inside = 0
        self.rota: Rota[str] = Rota(
            visit=self.visit,
            interval_s=5.0,
            slots=slots,
            clock=self.time.clock,
            sleep=self.time.sleep,
            random=draw or random.Random(7).random,
        )

    async def visit(self, key: str, member: str) -> bool:
        self.visits.append((self.time.now, key))
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        try:
            await self.time.sleep(1e9 if key in self.hanging else self.takes_s)
        finally:
            self.inside -= 1
        return key not in self.ill

    def times(self, key: str) -> list[float]:
        return [at for at, visited in self.visits if visited == key]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.rota.run())
        await self.time.settle()
        yield
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def members(count: int) -> dict[str, str]:
    return {f"m{number}": "x" for number in range(count)}


async def test_every_one_is_visited_once_an_interval_within_a_tenth() -> None:
    world = World()
    world.rota.assign(members(20))
    async with world.running():
        await world.time.advance(100)
    for key in members(20):
        times = world.times(key)
        gaps = [after - before for before, after in pairwise(times)]
        assert 17 <= len(times) <= 23
        assert all(4.5 <= gap <= 5.5 for gap in gaps)
        assert len(set(gaps)) > 10


async def test_first_visits_are_spread_over_the_interval() -> None:
    world = World()
    world.rota.assign(members(200))
    async with world.running():
        await world.time.advance(5)
    firsts = Counter(int(world.times(key)[0] - 1000) for key in members(200))
    assert set(firsts) == {0, 1, 2, 3, 4}
    assert max(firsts.values()) < 80


async def test_one_that_hangs_delays_no_other() -> None:
    world = World(slots=2)
    world.hanging = {"m0"}
    world.rota.assign(members(3))
    async with world.running():
        await world.time.advance(50)
    assert len(world.times("m0")) == 1
    assert len(world.times("m1")) >= 9 and len(world.times("m2")) >= 9


async def test_what_failed_waits_for_slots_of_its_own() -> None:
    world = World(slots=2)
    world.ill = {"m0", "m1", "m2", "m3"}
    world.rota.assign(members(6))
    async with world.running():
        await world.time.advance(6)
        world.hanging = set(world.ill)
        world.visits.clear()
        await world.time.advance(50)
    assert sum(len(world.times(key)) for key in world.ill) == 2
    assert len(world.times("m4")) >= 9 and len(world.times("m5")) >= 9


async def test_visits_at_once_are_bounded() -> None:
    world = World(slots=3, draw=lambda: 0.5)
    world.takes_s = 0.1
    world.rota.assign(members(40))
    async with world.running():
        await world.time.advance(20)
    assert world.most_inside == 3
    assert all(len(world.times(key)) >= 3 for key in members(40))


@pytest.mark.parametrize(("interval_s", "visits"), [(1.0, range(17, 24)), (20.0, range(1, 3))])
async def test_another_pace_holds_at_once(interval_s: float, visits: range) -> None:
    world = World()
    world.rota.assign(members(10))
    async with world.running():
        await world.time.advance(100)
        world.rota.pace(interval_s=interval_s, slots=8)
        world.visits.clear()
        await world.time.advance(20.5)
        assert all(len(world.times(key)) in visits for key in members(10))
        assert len([task for task in asyncio.all_tasks() if task.get_name().startswith("visit ")]) == 10


async def test_a_pace_before_it_runs_is_that_of_the_first_visit() -> None:
    world = World()
    world.rota.assign(members(3))
    world.rota.pace(interval_s=1.0, slots=1)
    async with world.running():
        await world.time.advance(1)
    assert len({key for _, key in world.visits}) == 3


async def test_another_pace_bounds_visits_anew() -> None:
    world = World(slots=8, draw=lambda: 0.5)
    world.takes_s = 0.1
    world.rota.assign(members(40))
    async with world.running():
        await world.time.advance(10)
        world.rota.pace(interval_s=5.0, slots=2)
        await world.time.settle()
        world.most_inside = world.inside
        await world.time.advance(20)
    assert world.most_inside == 2


async def test_members_come_and_go_while_it_runs() -> None:
    world = World()
    world.rota.assign({"stays": "x", "goes": "x", "moves": "x"})
    async with world.running():
        await world.time.advance(6)
        assert world.rota.assign({"stays": "x", "moves": "y", "comes": "x"}) == {"goes", "moves"}
        world.visits.clear()
        await world.time.advance(6)
    assert {key for _, key in world.visits} == {"stays", "moves", "comes"}


async def test_a_visit_of_one_that_leaves_is_broken_off() -> None:
    world = World()
    world.hanging = {"m0"}
    world.rota.assign(members(1))
    async with world.running():
        await world.time.advance(6)
        assert world.inside == 1
        world.rota.assign({})
        await world.time.settle()
        assert world.inside == 0


@pytest.mark.parametrize("jump", [1e6, -1e6])
async def test_a_clock_that_jumps_costs_one_interval_at_most(jump: float) -> None:
    world = World()
    world.rota.assign(members(1))
    async with world.running():
        await world.time.advance(6)
        before = len(world.visits)
        world.time.jumped += jump
        await world.time.advance(30)
    assert 4 <= len(world.visits) - before <= 8


async def test_it_runs_again_after_an_end() -> None:
    world = World()
    world.rota.assign(members(1))
    for _ in range(2):
        world.visits.clear()
        async with world.running():
            await world.time.advance(6)
        assert world.visits

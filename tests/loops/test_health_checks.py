"""Two failures in a row make an endpoint unhealthy, one success healthy; a table, and the loop around it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.engines.failures import Cause, Failure
from extproc.loops.health_checks import NEW, Checked, Condition, HealthChecks, judged
from extproc.model.names import Engine
from extproc.model.topology import Endpoint
from tests.loops.virtual_time import Time

BAD = Failure(Cause.REFUSED)


def after(results: str, threshold: int = 2) -> Condition:
    """`.` passes, `x` fails."""
    condition = NEW
    for at, result in enumerate(results):
        condition = judged(condition, BAD if result == "x" else None, threshold=threshold, now=float(at))
    return condition


@pytest.mark.parametrize(
    ("results", "healthy", "changed_at"),
    [
        ("", True, None),
        (".", True, None),
        ("x", True, None),
        ("xx", False, 1.0),
        ("xxx", False, 1.0),
        ("x.x.x.", True, None),
        (".xx", False, 2.0),
        ("xx.", True, 2.0),
        ("xx.x", True, 2.0),
        ("xx.xx", False, 4.0),
    ],
)
def test_conditions(results: str, healthy: bool, changed_at: float | None) -> None:
    condition = after(results)
    assert (condition.healthy, condition.changed_at) == (healthy, changed_at)
    assert (condition.checks, condition.failures) == (len(results), results.count("x"))


@given(st.text(".x", max_size=40), st.integers(1, 4))
def test_unhealthy_is_exactly_a_row_of_failures_that_long(results: str, threshold: int) -> None:
    assert after(results, threshold).healthy == (not results.endswith("x" * threshold))


class World:
    def __init__(self, *keys: str, timeout_s: float = 0.8) -> None:
        self.time = Time()
        self.bad: dict[str, Failure | Exception | None] = {}
        self.changes: list[tuple[str, bool]] = []
        self.checks = HealthChecks(
            check=self.check,
            on_change=lambda checked, healthy: self.changes.append((checked.key, healthy)),
            timeout_s=timeout_s,
            clock=self.time.clock,
            sleep=self.time.sleep,
            random=lambda: 0.5,
        )
        self.set(*keys)

    def set(self, *keys: str) -> None:
        self.checks.set_endpoints(Checked(key, Engine.VLLM, Endpoint("10.0.0.1", 8000)) for key in keys)

    async def check(self, checked: Checked) -> Failure | None:
        found = self.bad.get(checked.key)
        if isinstance(found, asyncio.QueueEmpty):
            await asyncio.Event().wait()
        if isinstance(found, Exception):
            raise found
        return found

    def healthy(self, key: str) -> bool:
        return self.checks.condition(key).healthy

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.checks.run())
        await self.time.settle()
        yield
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_an_endpoint_is_unhealthy_within_two_intervals_and_healthy_after_one() -> None:
    world = World("a")
    async with world.running():
        await world.time.advance(1)
        world.bad["a"] = BAD
        await world.time.advance(1)
        assert world.healthy("a")
        await world.time.advance(1)
        assert not world.healthy("a")
        world.bad.clear()
        await world.time.advance(1)
        assert world.healthy("a")
    assert world.changes == [("a", False), ("a", True)]
    assert world.checks.condition("a").age_s(now=world.time.now) == 0.5


async def test_a_new_endpoint_is_healthy_until_checked() -> None:
    world = World("a")
    world.bad["a"] = BAD
    assert world.healthy("a") and world.healthy("unknown")
    assert world.checks.condition("a").age_s(now=world.time.now) is None


@pytest.mark.parametrize("bug", [False, True])
async def test_a_check_that_hangs_or_breaks_is_a_failure(bug: bool) -> None:
    world = World("a", "b", timeout_s=0.02)
    world.bad["a"] = KeyError("x") if bug else asyncio.QueueEmpty()
    async with world.running():
        for _ in range(3):
            await world.time.advance(1)
            await asyncio.sleep(0.05)
    condition = world.checks.condition("a")
    assert not condition.healthy
    assert condition.failure and condition.failure.cause is (Cause.INTERNAL if bug else Cause.TIMEOUT)
    assert world.healthy("b")


async def test_endpoints_come_and_go_and_a_returning_one_is_new() -> None:
    world = World("a", "b")
    world.bad["a"] = BAD
    async with world.running():
        await world.time.advance(3)
        assert not world.healthy("a")
        world.set("b", "c")
        assert set(world.checks.conditions()) == {"b", "c"}
        world.set("a", "b", "c")
        assert world.healthy("a")
        await world.time.advance(1)
        assert world.checks.condition("c").checks == 1
    assert world.changes == [("a", False)]


async def test_two_endpoints_at_one_address_are_judged_apart() -> None:
    world = World("pool-a/x", "pool-b/x")
    world.bad["pool-a/x"] = BAD
    async with world.running():
        await world.time.advance(3)
    assert (world.healthy("pool-a/x"), world.healthy("pool-b/x")) == (False, True)


async def test_another_pace_judges_by_its_own_number_of_failures() -> None:
    world = World("a")
    async with world.running():
        world.bad["a"] = BAD
        await world.time.advance(1.1)
        before = world.checks.condition("a")
        assert (before.healthy, before.failed_in_row) == (True, 1)
        world.checks.pace(interval_s=0.5, timeout_s=0.4, failures=4)
        assert world.checks.condition("a") is before
        await world.time.advance(0.9)
        assert world.checks.condition("a").healthy
        await world.time.advance(1.0)
        assert world.changes == [("a", False)]

"""The scraper: what is kept of each target, through failures, restarts and clocks that jump."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from extproc.engines.exposition import Point
from extproc.engines.failures import Cause, Failure
from extproc.engines.reading import OWN, Content, Source
from extproc.loops.telemetry import UNKNOWN, Look, Scraper, Target
from tests.loops.virtual_time import Time

Answer = Content | Failure | Exception | None


def target(key: str, source: Source = Source.VLLM, url: str = "http://a/metrics") -> Target:
    return Target(key, source, url)


def page(running: float, tokens: float = 0, cpu: float = 0) -> bytes:
    return b"vllm:num_requests_running %g\nvllm:generation_tokens_total %d\nprocess_cpu_seconds_total %g\n" % (
        running,
        tokens,
        cpu,
    )


class World:
    """Answers by target key; None hangs."""

    def __init__(self, *targets: Target, timeout_s: float = 3.0) -> None:
        self.time = Time()
        self.answers: dict[str, Answer] = {}
        self.heard: list[tuple[str, Failure | None]] = []
        self.scraper = Scraper(
            fetch=self.fetch,
            observer=self,
            timeout_s=timeout_s,
            clock=self.time.clock,
            sleep=self.time.sleep,
            random=lambda: 0.5,
        )
        self.scraper.set_targets(targets)

    async def fetch(self, target: Target) -> Content | Failure:
        answer = self.answers[target.key]
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        assert answer is not None
        return answer

    def scraped(self, target: Target, duration_s: float, failure: Failure | None) -> None:
        assert duration_s >= 0
        self.heard.append((target.key, failure))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.scraper.run())
        await self.time.settle()
        yield
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def next(self, key: str, answer: Answer) -> Look:
        """One interval on, in which the target answers so."""
        self.answers[key] = answer
        await self.time.advance(5)
        return self.scraper.look(key)


async def test_a_good_page_is_a_sample_with_its_time() -> None:
    world = World(target("a"))
    assert world.scraper.look("a") == UNKNOWN
    async with world.running():
        look = await world.next("a", page(3))
    assert look.samples[OWN].running == 3.0
    assert (look.taken_at, look.changed_at, look.page_changed_at) == (1002.5, 1002.5, 1002.5)
    assert (look.looks, look.failed_in_row, look.failure, dict(look.failures)) == (1, 0, None, {})
    assert look.age_s(now=1012.5) == 10.0


async def test_a_failed_look_keeps_the_last_sample_and_counts() -> None:
    world = World(target("a"))
    async with world.running():
        await world.next("a", page(3))
        look = await world.next("a", Failure(Cause.REFUSED))
        assert (look.samples[OWN].running, look.taken_at) == (3.0, 1002.5)
        look = await world.next("a", b"<html>busy</html>")
        assert look.failures == {Cause.REFUSED: 1, Cause.NOT_METRICS: 1}
        assert (look.failed_in_row, look.failure and look.failure.cause) == (2, Cause.NOT_METRICS)
        look = await world.next("a", page(4))
    assert (look.samples[OWN].running, look.failed_in_row, look.failure, look.looks) == (4.0, 0, None, 4)
    assert [failure and failure.cause for _, failure in world.heard] == [
        None,
        Cause.REFUSED,
        Cause.NOT_METRICS,
        None,
    ]


async def test_one_failure_in_three_does_not_break_the_rates() -> None:
    world = World(target("a"))
    async with world.running():
        await world.next("a", page(1, tokens=100))
        await world.next("a", Failure(Cause.TIMEOUT))
        look = await world.next("a", page(1, tokens=200))
    assert look.samples[OWN].rates == {"vllm:generation_tokens_total": 10.0}


async def test_a_frozen_exporter_is_told_from_an_idle_engine() -> None:
    world = World(target("frozen"), target("idle"))
    async with world.running():
        for cpu in range(7):
            world.answers["frozen"] = page(0)
            await world.next("idle", page(0, cpu=cpu))
    now = world.time.now
    frozen, idle = world.scraper.look("frozen"), world.scraper.look("idle")
    assert frozen.age_s(now=now) == idle.age_s(now=now) == 2.5
    assert (frozen.changed_at, idle.changed_at) == (1002.5, 1002.5)
    assert (frozen.unchanged_s(now=now), idle.unchanged_s(now=now)) == (30.0, 0.0)


async def test_an_exporter_that_thaws_has_changed() -> None:
    world = World(target("a"))
    async with world.running():
        for _ in range(3):
            await world.next("a", page(0))
        look = await world.next("a", page(1))
    assert (look.changed_at, look.unchanged_s(now=world.time.now)) == (1017.5, 0.0)


async def test_answers_as_points_are_compared_as_well() -> None:
    world = World(target("a", Source.TRITON))
    points = (Point("nv_inference_pending_request_count", {"model": "m"}, 2.0),)
    async with world.running():
        await world.next("a", points)
        look = await world.next("a", tuple(points))
    assert look.samples[OWN].waiting == 2.0
    assert look.unchanged_s(now=world.time.now) == 5.0


async def test_one_that_hangs_fails_at_its_timeout_and_delays_no_other() -> None:
    world = World(target("hangs"), target("well"), timeout_s=0.02)
    world.answers = {"hangs": None, "well": page(1)}
    async with world.running():
        await world.time.advance(2.6)
        assert world.scraper.look("well").taken_at == 1002.5
        await asyncio.sleep(0.1)
        look = world.scraper.look("hangs")
    assert (look.failures, look.taken_at) == ({Cause.TIMEOUT: 1}, None)
    assert look.age_s(now=world.time.now) is None


async def test_a_bug_in_fetching_is_counted_and_not_the_end(caplog: pytest.LogCaptureFixture) -> None:
    world = World(target("a"))
    async with world.running():
        look = await world.next("a", KeyError("x"))
        assert look.failures == {Cause.INTERNAL: 1}
        assert caplog.records[0].exc_info is not None
        look = await world.next("a", page(1))
    assert look.samples[OWN].running == 1.0


async def test_a_row_of_failures_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world = World(target("a"))
    async with world.running():
        for answer in (
            Failure(Cause.REFUSED),
            Failure(Cause.REFUSED),
            Failure(Cause.STATUS, "404"),
            page(1),
            page(2),
        ):
            await world.next("a", answer)
    assert [record.getMessage() for record in caplog.records] == [
        "a not scraped: refused",
        "a not scraped: status: 404",
        "a scraped again",
    ]


async def test_targets_change_while_it_runs() -> None:
    world = World(target("stays"), target("goes"), target("moves"))
    world.answers = dict.fromkeys(("stays", "goes", "moves", "comes"), page(1))
    async with world.running():
        await world.time.advance(5)
        world.scraper.set_targets([target("stays"), target("moves", url="http://b/"), target("comes")])
        assert set(world.scraper.looks()) == {"stays", "moves", "comes"}
        assert world.scraper.look("stays").looks == 1
        assert world.scraper.look("goes") == world.scraper.look("moves") == UNKNOWN
        await world.time.advance(5)
    assert {key: look.looks for key, look in world.scraper.looks().items()} == {"stays": 2, "moves": 1, "comes": 1}


async def test_two_targets_at_one_address_are_two() -> None:
    world = World(target("pool-a/x"), target("pool-b/x"))
    world.answers = {"pool-a/x": page(1), "pool-b/x": Failure(Cause.RESET)}
    async with world.running():
        await world.time.advance(5)
    assert world.scraper.look("pool-a/x").samples[OWN].running == 1.0
    assert world.scraper.look("pool-b/x").samples == {}


@pytest.mark.parametrize("jump", [1e7, -1e7])
async def test_a_clock_that_jumps_makes_no_rate(jump: float) -> None:
    world = World(target("a"))
    async with world.running():
        await world.next("a", page(1, tokens=100))
        world.time.jumped += jump
        look = await world.next("a", page(1, tokens=1e9))
        assert look.samples[OWN].rates == {}
        assert look.age_s(now=world.time.clock()) == 2.5
        look = await world.next("a", page(1, tokens=1e9 + 50))
    assert look.samples[OWN].rates["vllm:generation_tokens_total"] == pytest.approx(10.0)


def test_a_clock_before_the_sample_makes_no_negative_age() -> None:
    look = Look(taken_at=100.0, page_changed_at=100.0)
    assert (look.age_s(now=50.0), look.unchanged_s(now=50.0)) == (0.0, 0.0)


async def test_another_pace_keeps_what_is_known() -> None:
    world = World(target("a"))
    async with world.running():
        before = await world.next("a", page(1))
        world.scraper.pace(interval_s=1.0, timeout_s=9.0, slots=1)
        assert world.scraper.look("a") is before
        world.heard.clear()
        await world.time.advance(10)
        assert len(world.heard) >= 9
    assert world.scraper._timeout_s == 1.0

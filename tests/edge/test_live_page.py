"""The status page over real HTTP: changes arrive, clients are few, the end is quick."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import msgspec
import pytest
from aiohttp import web

from extproc.edge.admin import start
from extproc.edge.live_page import MAX_CLIENTS, LivePage, event
from extproc.page.document import POLICY
from tests.ports import free_port


class World:
    """Parts a test can change."""

    def __init__(self) -> None:
        self.parts = {"now": "<p>a</p>", "pools": "<p>b</p>"}
        self.made = 0

    def sections(self) -> dict[str, str]:
        self.made += 1
        return dict(self.parts)


class Running:
    def __init__(self) -> None:
        self.world = World()
        self.port = free_port()

    async def start(self) -> None:
        self.page = LivePage(self.world.sections, ("/metrics",))
        app = web.Application()
        self.page.add_to(app)
        self.runner = await start(app, "127.0.0.1", self.port)


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    running = Running()
    await running.start()
    yield running
    await running.runner.cleanup()


@pytest.fixture
async def http(running: Running) -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{running.port}", connector=connector) as session:
        yield session


async def changed(response: aiohttp.ClientResponse) -> dict[str, str]:
    """The next parts that come."""
    async with asyncio.timeout(10):
        while not (line := await response.content.readline()).startswith(b"data: "):
            assert line, "the stream ended"
    return msgspec.json.decode(line[6:], type=dict[str, str])


async def test_the_page_holds_the_parts_and_its_policy(http: aiohttp.ClientSession) -> None:
    async with http.get("/") as response:
        assert '<section id="now"><p>a</p></section>' in await response.text()
        assert response.headers["Content-Security-Policy"] == POLICY


async def test_first_all_parts_then_those_that_changed(running: Running, http: aiohttp.ClientSession) -> None:
    async with http.get("/live") as response:
        assert response.headers["Content-Type"] == "text/event-stream"
        assert await changed(response) == running.world.parts
        running.world.parts["pools"] = "<p>\nc</p>"
        assert await changed(response) == {"pools": "<p>\nc</p>"}


async def test_too_many_are_told_to_come_later(running: Running, http: aiohttp.ClientSession) -> None:
    following = [await http.get("/live") for _ in range(MAX_CLIENTS)]
    for each in following:
        await changed(each)
    async with http.get("/live") as response:
        assert (response.status, response.headers["Retry-After"]) == (503, "5")
    following.pop().close()
    async with asyncio.timeout(10):
        while running.page.clients == MAX_CLIENTS:
            await asyncio.sleep(0.05)
    async with http.get("/live") as response:
        assert response.status == 200
    for each in following:
        each.close()


async def test_many_share_one_rendering() -> None:
    world = World()
    page = LivePage(world.sections, (), clock=lambda: 5.0)
    assert page._shared() is page._shared()
    assert world.made == 1


async def test_the_end_waits_for_nobody_who_follows(running: Running, http: aiohttp.ClientSession) -> None:
    async with http.get("/live") as response:
        await changed(response)
        await running.runner.cleanup()
        async with asyncio.timeout(10):
            while await response.content.readline():
                pass
    assert running.page.clients == 0


def test_an_event_is_one_line() -> None:
    assert event({"a": "x\n\ny"}) == b'data: {"a":"x\\n\\ny"}\n\n'
    assert event({}) == b": nothing new\n\n"

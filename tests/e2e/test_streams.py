"""Streams are not held back, and thousands of them stay open at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from tests.e2e.asking import STRICT, chat
from tests.e2e.holding import LAST, HoldingEngine, Stream
from tests.e2e.running import Stack, until
from tests.ports import free_port

STREAMS = 3000
OPENING = 100  # connections in the making at a time

BODY = json.dumps(chat(STRICT, stream=True)).encode()


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def held(port: int, transport: str) -> Iterator[Stack]:
    with Stack(engine_url=f"http://127.0.0.1:{port}", changes={"transport": transport}) as running:
        yield running


async def test_an_event_arrives_when_it_is_sent(held: Stack, port: int) -> None:
    """The last event is not even written yet when the first one is here."""
    async with HoldingEngine(port) as engine:
        stream = await Stream(held.port, BODY).open()
        assert LAST not in stream.text
        engine.release.set()
        await stream.rest()
        assert stream.is_complete()
        assert engine.judged == 1


@pytest.mark.timeout(180)
async def test_thousands_of_slow_streams_at_once(held: Stack, port: int) -> None:
    opening = asyncio.Semaphore(OPENING)
    streams = [Stream(held.port, BODY) for _ in range(STREAMS)]

    async def open_one(stream: Stream) -> None:
        async with opening:
            await stream.open()

    async with HoldingEngine(port) as engine:
        async with asyncio.timeout(90):
            await asyncio.gather(*map(open_one, streams))
        assert engine.open == engine.judged == STREAMS
        sidecar_cluster = await asyncio.to_thread(held.envoy.stats, "cluster.llm_ext_proc.")
        assert sidecar_cluster["upstream_rq_pending_overflow"] == 0
        assert sidecar_cluster["upstream_cx_overflow"] == 0
        in_sidecar = await asyncio.to_thread(held.sidecar.count, "llm_streams_open")
        assert in_sidecar == sidecar_cluster["upstream_rq_active"]
        engine.release.set()
        async with asyncio.timeout(60):
            await asyncio.gather(*(stream.rest() for stream in streams))
    assert all(stream.is_complete() for stream in streams)
    until(lambda: held.sidecar.count("llm_streams_open") == 0, within_s=30, what="streams closed")

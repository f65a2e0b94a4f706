"""Every client against one server directly: all answers are its own, and failures are counted, not lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from tests.engines_real import clients
from tests.engines_real.clients import OpenStream, Split
from tests.engines_real.fixtures import Tritons
from tests.engines_real.triton import WHOLE
from tests.ports import free_port

TIMES = 40
BLOCKING = [clients.generate, clients.http_infer]


@pytest.mark.parametrize("ask", BLOCKING)
def test_http(tritons: Tritons, ask: Callable[[int, int], Split]) -> None:
    split = ask(tritons[0].http_port, TIMES)
    assert split.failures == []
    assert split.servers == {tritons[0].name: TIMES}


def test_grpc(tritons: Tritons) -> None:
    split = clients.grpc_infer(tritons[1].grpc_port, TIMES)
    assert split.failures == []
    assert split.servers == {tritons[1].name: TIMES}


async def test_grpc_aio(tritons: Tritons) -> None:
    split = await clients.grpc_infer_aio(tritons[1].grpc_port, TIMES, priority=1)
    assert split.failures == []
    assert split.servers == {tritons[1].name: TIMES}


@pytest.mark.parametrize("ask", [*BLOCKING, clients.grpc_infer])
def test_nobody_there_is_a_failure(ask: Callable[[int, int], Split]) -> None:
    split = ask(free_port(), 2)
    assert split.answers == 0
    assert len(split.failures) == 2


async def test_nobody_there_is_a_failure_aio() -> None:
    split = await clients.grpc_infer_aio(free_port(), 2)
    assert (split.answers, len(split.failures)) == (0, 2)


def test_share() -> None:
    split = Split.of(["a", "b", "a", OSError("refused"), "a"])
    assert split.share("a") == 0.75
    assert split.share("c") == 0.0
    assert split.failures == ["OSError: refused"]


async def test_stream_stays_open_between_requests(tritons: Tritons) -> None:
    async with OpenStream(tritons[0].grpc_port) as stream:
        assert [word async for word in stream.ask("one two", max_tokens=3)] == ["one", " two", " one"]
        await asyncio.sleep(0.3)
        assert [word async for word in stream.ask("three", max_tokens=1)] == ["three"]
        assert [text async for text in stream.ask("four", max_tokens=2, model=WHOLE)] == ["four four"]
    assert stream.servers == {tritons[0].name: 5}


async def test_stream_answers_word_by_word(tritons: Tritons) -> None:
    """The first word is here before the last one can have been made."""
    async with OpenStream(tritons[0].grpc_port) as stream:
        came_s = [time.monotonic() async for _ in stream.ask("one", max_tokens=4, delay_ms=300)]
    assert came_s[-1] - came_s[0] > 0.4

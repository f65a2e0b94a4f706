"""The observer's servicer, over a real gRPC channel."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from extproc.codec.ext_proc import METHOD_NAME, METHOD_SERVICE
from extproc.codec.wire import ext_proc_pb2 as pb
from extproc.edge import usage
from extproc.model.telemetry import UsageSample
from extproc.usage.observation import Observation
from extproc.usage.seen import Outcome

METHOD = f"/{METHOD_SERVICE}/{METHOD_NAME}"
EVENT = b'data: {"model":"m","choices":[{"delta":{"content":"secret-words"}}]}\n\n'
ANSWER = json.dumps({"model": "m", "usage": {"prompt_tokens": 1, "completion_tokens": 2}}).encode()


class Notes:
    """A recorder that writes down what it is told."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[str, str]] = []
        self.samples: list[UsageSample] = []

    def usage_ended(self, outcome: Outcome, reason: str) -> None:
        self.outcomes.append((outcome.value, reason))

    def usage(self, sample: UsageSample) -> None:
        self.samples.append(sample)


def headers(kind: str, pairs: dict[str, str]) -> bytes:
    message = pb.ProcessingRequest()
    for name, value in pairs.items():
        getattr(message, kind).headers.headers.add(key=name, raw_value=value.encode())
    return bytes(message.SerializeToString())


def piece(body: bytes, end: bool) -> bytes:
    return pb.ProcessingRequest(response_body=pb.HttpBody(body=body, end_of_stream=end)).SerializeToString()


REQUEST = headers("request_headers", {":path": "/v1/chat/completions", "x-llm-tenant": "shop"})
AS_JSON = headers("response_headers", {":status": "200", "content-type": "application/json"})
AS_EVENTS = headers("response_headers", {":status": "200", "content-type": "text/event-stream"})


class World:
    def __init__(self, observer: usage.UsageObserver, notes: Notes, channel: grpc.aio.Channel) -> None:
        self.observer, self.notes = observer, notes
        self._call = channel.stream_stream(METHOD)

    async def shown(self, *messages: bytes) -> Any:
        """A stream with these messages on it, left open."""
        call = self._call()
        for message in messages:
            await call.write(message)
        return call

    async def until_told(self, count: int) -> None:
        async with asyncio.timeout(5):
            while len(self.notes.outcomes) < count:
                await asyncio.sleep(0.002)

    async def until_open(self, count: int) -> None:
        async with asyncio.timeout(5):
            while self.observer.open != count:
                await asyncio.sleep(0.002)


@asynccontextmanager
async def world(tmp_path: Path, max_streams: int = 10) -> AsyncIterator[World]:
    notes = Notes()
    observer = usage.UsageObserver(recorder=notes, max_held_bytes=4096, max_streams=max_streams)
    server = grpc.aio.server(options=usage.SERVER_OPTIONS)
    server.add_generic_rpc_handlers((usage.handler(observer),))
    server.add_insecure_port(f"unix:{tmp_path}/control.sock")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"unix:{tmp_path}/control.sock") as channel:
            yield World(observer, notes, channel)
    finally:
        await server.stop(0)


async def test_a_sample_and_no_answer(tmp_path: Path) -> None:
    async with world(tmp_path) as shown:
        call = await shown.shown(REQUEST, AS_JSON, piece(ANSWER[:9], False), piece(ANSWER[9:], True))
        assert await call.read() is grpc.aio.EOF  # type: ignore[attr-defined]
        assert await call.code() is grpc.StatusCode.OK
        assert shown.notes.outcomes == [("read", "")]
        (sample,) = shown.notes.samples
        assert (sample.tenant, sample.prompt_tokens, sample.output_tokens) == ("shop", 1, 2)
        await shown.until_open(0)


async def test_a_stream_that_envoy_half_closes_early_is_aborted(tmp_path: Path) -> None:
    async with world(tmp_path) as shown:
        call = await shown.shown(REQUEST, AS_EVENTS, piece(EVENT * 3, False))
        await call.done_writing()
        await shown.until_told(1)
        assert shown.notes.outcomes == [("aborted", "")]
        assert shown.notes.samples[0].output_tokens == 3


async def test_a_stream_that_envoy_resets_is_aborted(tmp_path: Path) -> None:
    async with world(tmp_path) as shown:
        call = await shown.shown(REQUEST, AS_EVENTS, piece(EVENT, False))
        await shown.until_open(1)
        call.cancel()
        await shown.until_told(1)
        assert [outcome for outcome, _ in shown.notes.outcomes] == ["aborted"]
        await shown.until_open(0)


async def test_what_is_skipped_ends_at_once(tmp_path: Path) -> None:
    async with world(tmp_path) as shown:
        call = await shown.shown(headers("request_headers", {":path": "/v1/models"}))
        assert await call.read() is grpc.aio.EOF  # type: ignore[attr-defined]
        assert shown.notes.outcomes == [("skipped", "no_dialect")]
        assert shown.notes.samples == []


async def test_bytes_that_are_no_message(tmp_path: Path) -> None:
    async with world(tmp_path) as shown:
        await shown.shown(b"\xff\xff")
        await shown.until_told(1)
        assert shown.notes.outcomes == [("skipped", "protocol")]


async def test_more_streams_than_may_be_read(tmp_path: Path) -> None:
    async with world(tmp_path, max_streams=2) as shown:
        held = [await shown.shown(REQUEST, AS_EVENTS) for _ in range(2)]
        await shown.until_open(2)
        refused = await shown.shown(REQUEST)
        assert await refused.read() is grpc.aio.EOF  # type: ignore[attr-defined]
        assert shown.notes.outcomes == [("skipped", "busy")]
        await held[0].done_writing()
        await shown.until_open(1)
        assert await (await shown.shown(REQUEST, AS_JSON, piece(ANSWER, True))).read() is grpc.aio.EOF  # type: ignore[attr-defined]
        assert shown.notes.outcomes[-1] == ("read", "")


async def test_a_bug_is_counted_and_its_words_are_not_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("secret-words")

    monkeypatch.setattr(Observation, "handle", broken)
    with caplog.at_level(logging.ERROR):
        async with world(tmp_path) as shown:
            await shown.shown(REQUEST)
            await shown.until_told(1)
            assert shown.notes.outcomes == [("skipped", "internal")]
            await shown.until_open(0)
    assert "ValueError at test_usage.py:" in caplog.text
    assert "secret-words" not in caplog.text

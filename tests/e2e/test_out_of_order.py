"""A peer that breaks the protocol, straight at the sidecar's socket: one stream ends, nothing else notices."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress

import grpc
import pytest

from tests.e2e.asking import CHAT, ask
from tests.e2e.running import Stack, until
from tests.e2e.speaking import BODY, EMPTY, Peer, body, conversation, headers, response, trailers

OK, WRONG = grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT


@pytest.fixture
async def channel(stack: Stack) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(f"unix:{stack.sidecar.socket}") as opened:
        yield opened


async def test_a_well_behaved_stream(channel: grpc.aio.Channel) -> None:
    peer = Peer(channel)
    await peer.send(headers(mode="BUFFERED"))
    assert (await peer.answer()).WhichOneof("response") == "request_headers"
    await peer.send(body())
    answer = await peer.answer()
    mutation = answer.request_body.response
    assert json.loads(mutation.body_mutation.body)["temperature"] == 0.3
    set_headers = {each.header.key: each.header.raw_value for each in mutation.header_mutation.set_headers}
    assert set_headers["content-length"] == b"%d" % len(mutation.body_mutation.body)
    assert await peer.end() == ([], OK)


@pytest.mark.parametrize(
    "messages",
    [
        [body()],
        [trailers()],
        [EMPTY],
        [headers(), headers()],
        [headers(), EMPTY],
        [b"\xff\xff\xff\xff"],
        [headers(), b"\x12\xff\xff\xff\xff\x0f"],
        [headers(mode="STREAMED")],
        [headers(mode="FULL_DUPLEX_STREAMED")],
    ],
    ids=[
        "body first",
        "trailers first",
        "empty first",
        "headers twice",
        "empty second",
        "garbage first",
        "garbage second",
        "streamed body",
        "full duplex body",
    ],
)
async def test_a_broken_protocol_ends_the_stream(
    stack: Stack, channel: grpc.aio.Channel, messages: list[bytes]
) -> None:
    before = stack.sidecar.count("llm_streams_total", outcome="protocol_violation")
    said, status = await conversation(channel, *messages)
    assert status is WRONG
    assert said in ([], ["request_headers"])
    until(lambda: stack.sidecar.count("llm_streams_total", outcome="protocol_violation") == before + 1)


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([headers(), body(b"")], ["request_headers", "request_body"]),
        ([headers(), body(end=False), trailers()], ["request_headers", "request_body", "request_trailers"]),
        (
            [headers(), body(end=False), body(b"more", end=False), body(b"last")],
            ["request_headers", "request_body", "request_body", "request_body"],
        ),
        ([headers(), trailers()], ["request_headers", "request_trailers"]),
        ([headers(path="/v1/models"), body(b"x")], ["request_headers", "request_body"]),
        ([response("response_headers")], ["response_headers"]),
        (
            [headers(), response("response_headers"), body()],
            ["request_headers", "response_headers", "request_body"],
        ),
        ([], []),
    ],
    ids=[
        "an empty body",
        "trailers after the body",
        "bodies after the judged one",
        "trailers in place of a body",
        "a body nobody reads",
        "a response without a request",
        "a response before the body",
        "nothing at all",
    ],
)
async def test_what_is_owed_is_answered_and_nothing_else(
    channel: grpc.aio.Channel, messages: list[bytes], said: list[str]
) -> None:
    assert await conversation(channel, *messages) == (said, OK)


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([headers(), body(), body()], ["request_headers", "request_body"]),
        ([headers(), body(), headers()], ["request_headers", "request_body"]),
        ([headers(end=True), body()], ["request_headers"]),
        ([headers(), body(b"[1]"), body(), trailers(), EMPTY], ["request_headers", "immediate_response"]),
        ([headers(path="/v1/models", end=True), trailers()], ["request_headers"]),
        ([headers(), body(), response("response_headers")], ["request_headers", "request_body"]),
    ],
    ids=[
        "a second last body",
        "headers after the end",
        "a body after a request without one",
        "anything after a rejection",
        "trailers after the end",
        "a response phase",
    ],
)
async def test_nothing_is_said_after_the_end(
    stack: Stack, channel: grpc.aio.Channel, messages: list[bytes], said: list[str]
) -> None:
    """The stream has ended with OK by then; what the peer hears of its late message is its own affair.

    It listens before it goes on: a client library whose late write fails may drop what it has not read yet.
    """
    completed = stack.sidecar.count("llm_streams_total", outcome="completed")
    peer = Peer(channel)
    await peer.send(*messages[: len(said)])
    assert [(await peer.answer()).WhichOneof("response") for _ in said] == said
    with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        await peer.send(*messages[len(said) :])
        await peer.call.done_writing()
    assert (await peer.listen())[0] == []
    until(lambda: stack.sidecar.count("llm_streams_total", outcome="completed") == completed + 1)


async def test_a_judged_stream_ends_at_once(channel: grpc.aio.Channel) -> None:
    """An answer may take minutes: a sidecar that restarts meanwhile must not be missed."""
    peer = Peer(channel)
    await peer.send(headers(), body())
    assert await peer.listen() == (["request_headers", "request_body"], OK)


async def test_other_streams_do_not_notice(stack: Stack, channel: grpc.aio.Channel) -> None:
    """On the same connection and through Envoy."""
    peer = Peer(channel)
    await peer.send(headers())
    await peer.answer()
    for _ in range(50):
        assert (await conversation(channel, EMPTY))[1] is WRONG
    await peer.send(body())
    assert (await peer.answer()).WhichOneof("response") == "request_body"
    assert await peer.end() == ([], OK)
    assert ask(stack.port, CHAT, BODY).params["temperature"] == 0.3


async def test_rejections_are_counted_and_open_streams_return_to_zero(
    stack: Stack, channel: grpc.aio.Channel
) -> None:
    before = stack.sidecar.count("llm_rejections_total", reason="invalid_json", status="400")
    peers = [Peer(channel) for _ in range(10)]
    for peer in peers:
        await peer.send(headers())
        await peer.answer()
    assert stack.sidecar.count("llm_streams_open") == 10
    for peer in peers[:5]:
        await peer.send(body(b"{"))
        assert (await peer.answer()).immediate_response.status.code == 400
    for peer in peers:
        peer.call.cancel()
    until(lambda: stack.sidecar.count("llm_streams_open") == 0, what="open streams")
    assert stack.sidecar.count("llm_rejections_total", reason="invalid_json", status="400") == before + 5
    assert "Traceback" not in stack.sidecar.running.log()

"""Envoy's side of the ext_proc protocol, spoken by hand at the sidecar's socket."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import grpc

from extproc.codec.wire import ext_proc_pb2 as pb
from tests.e2e.asking import CHAT, STRICT, chat

METHOD = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
BODY = json.dumps(chat(STRICT, temperature=1)).encode()


def headers(*, path: str = CHAT, end: bool = False, mode: str = "") -> bytes:
    message = pb.ProcessingRequest()
    message.request_headers.end_of_stream = end
    for name, value in ((":method", "POST"), (":path", path), ("x-request-id", "straight")):
        message.request_headers.headers.headers.add(key=name, raw_value=value.encode())
    if mode:
        message.protocol_config.request_body_mode = pb.BodySendMode.Value(mode)
    return bytes(message.SerializeToString())


def body(content: bytes = BODY, *, end: bool = True) -> bytes:
    message = pb.ProcessingRequest()
    message.request_body.body = content
    message.request_body.end_of_stream = end
    return bytes(message.SerializeToString())


def trailers() -> bytes:
    message = pb.ProcessingRequest()
    message.request_trailers.SetInParent()
    return bytes(message.SerializeToString())


def response(kind: str) -> bytes:
    message = pb.ProcessingRequest()
    getattr(message, kind).SetInParent()
    return bytes(message.SerializeToString())


EMPTY = bytes(pb.ProcessingRequest().SerializeToString())


class Peer:
    """One stream; `says` are the kinds of what is answered, the status comes at its end."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.call: Any = channel.stream_stream(METHOD)()

    async def send(self, *messages: bytes) -> None:
        for message in messages:
            await self.call.write(message)

    async def answer(self) -> Any:
        return pb.ProcessingResponse.FromString(await self.call.read())

    async def end(self) -> tuple[list[str], grpc.StatusCode]:
        """What else is said until the stream is over, and how it ended."""
        await self.call.done_writing()
        return await self.listen()

    async def listen(self) -> tuple[list[str], grpc.StatusCode]:
        said = []
        with suppress(grpc.aio.AioRpcError):
            while (message := await self.call.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
                said.append(pb.ProcessingResponse.FromString(message).WhichOneof("response"))
        return said, await self.call.code()


async def conversation(channel: grpc.aio.Channel, *messages: bytes) -> tuple[list[str], grpc.StatusCode]:
    """Says everything, whatever is answered meanwhile."""
    peer = Peer(channel)
    heard = asyncio.create_task(peer.listen())
    with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # ended while more was to be said
        await peer.send(*messages)
        await peer.call.done_writing()
    return await heard

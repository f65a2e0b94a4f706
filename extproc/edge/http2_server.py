"""gRPC for one method with calls that never wait, on asyncio's own sockets: the fast transport.

`grpc.aio` takes a task, several awaits and a thread's hand-over per stream: more than the judgement costs. Here a
message is answered where it is read. A call that fails ends with its status, a connection that breaks HTTP/2 alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Mapping
from typing import Protocol, cast

from extproc.codec import grpc_messages as grpc
from extproc.codec.http2 import Connection
from extproc.codec.http2_events import Broken, Ended, Event, Opened, Received, Reset

log = logging.getLogger("extproc.http2")

BACKLOG = 1024
DRAINED_S = 0.05
"""How often a server that drains looks whether all is said."""

MAX_UNSENT = 20_000
"""Frames kept for a peer that does not read; then nothing more is read of it either, until it does."""


class Call(Protocol):
    """One stream of a method. `answer` raises what the method's `failed` makes a status of."""

    @property
    def over(self) -> bool: ...
    def answer(self, message: bytes) -> bytes | None: ...
    def ended(self, outcome: str) -> None: ...


class Failed(Protocol):
    @property
    def status(self) -> int: ...
    @property
    def text(self) -> str: ...
    @property
    def outcome(self) -> str: ...


class Method(Protocol):
    """`open` begins a call."""

    def open(self) -> Call: ...
    def failed(self, error: Exception) -> Failed: ...


class Http2Server:
    """`methods` by path; no message may be longer than `max_message_bytes`. `settle` is called when all that came
    at once is answered, before the answers leave."""

    def __init__(
        self, methods: Mapping[bytes, Method], *, max_message_bytes: int, settle: Callable[[], None] = lambda: None
    ) -> None:
        self._methods = methods
        self._max_message_bytes = max_message_bytes
        self._settle = settle
        self._open: set[_Peer] = set()
        self._server: asyncio.Server | None = None

    async def start(self, listening: socket.socket) -> None:
        """Accept on a socket that is bound already."""
        loop = asyncio.get_running_loop()
        serve = loop.create_unix_server if listening.family == socket.AF_UNIX else loop.create_server
        self._server = await serve(self._peer, sock=listening, backlog=BACKLOG)

    def _peer(self) -> _Peer:
        return _Peer(self._methods, self._max_message_bytes, self._open, self._settle)

    async def stop(self, grace_s: float) -> None:
        """Nobody new; who is connected is told to go, and calls go on until they end or the time is over."""
        if self._server is not None:
            self._server.close()
        self._drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                while self._open:
                    await asyncio.sleep(DRAINED_S)
                    self._drain()
        for peer in tuple(self._open):
            peer.close()

    def _drain(self) -> None:
        for peer in tuple(self._open):
            peer.drain()


_NO_SUCH_METHOD = grpc.HEADERS + grpc.status(grpc.UNIMPLEMENTED, "no such method")


class _Open:
    """One call as its connection knows it."""

    __slots__ = ("answered", "call", "messages", "method")

    def __init__(self, method: Method, most: int) -> None:
        self.method = method
        self.call = method.open()
        self.messages = grpc.Messages(most)
        self.answered = False


class _Peer(asyncio.Protocol):
    """One connection."""

    def __init__(
        self, methods: Mapping[bytes, Method], most: int, everybody: set[_Peer], settle: Callable[[], None]
    ) -> None:
        self._settle = settle
        self._methods = methods
        self._most = most
        self._everybody = everybody
        self._http2 = Connection()
        self._calls: dict[int, _Open] = {}
        self._paused = False
        self._leaving = False
        self._was_idle = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._everybody.add(self)
        self._write()

    def connection_lost(self, _: Exception | None) -> None:
        self._everybody.discard(self)
        self._transport = None
        self._end_all()

    def eof_received(self) -> None:
        self.close()

    def data_received(self, data: bytes) -> None:
        for event in self._http2.receive(data):
            self._on(event)
        self._settle()
        self._write()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._write()
        if self._transport is not None:
            self._transport.resume_reading()

    def drain(self) -> None:
        """A peer that is told to go closes by itself; one that does not, and says nothing, is closed at the second
        look: what it sent before it was told is on its way."""
        if not self._leaving:
            self._leaving = True
            self._http2.leave()
            self._write()
            return
        idle = not self._http2.streams and not self._paused
        if idle and self._was_idle:
            self.close()
        self._was_idle = idle

    def close(self) -> None:
        """Behind all there is to say; but nobody waits for a peer that does not read."""
        self._end_all()
        if self._transport is None:
            return
        if self._paused:
            self._transport.abort()
        else:
            self._write()
            self._transport.close()

    def _write(self) -> None:
        if self._transport is None:
            return
        if not self._paused:
            if out := self._http2.take():
                self._transport.write(out)
        elif self._http2.unsent > MAX_UNSENT:
            self._transport.pause_reading()

    def _on(self, event: Event) -> None:
        match event:
            case Received():
                self._on_data(event.stream, event.data)
            case Opened():
                self._on_opened(event)
            case Ended():
                self._on_ended(event.stream)
            case Reset():
                self._end(event.stream, "cancelled")
            case Broken():
                log.warning("connection closed: %s (%s)", event.reason, event.code.name)
                self.close()

    def _on_opened(self, event: Opened) -> None:
        method = self._methods.get(event.headers.get(b":path", b""))
        if method is None or event.headers.get(b":method") != b"POST":
            self._http2.finish(event.stream, _NO_SUCH_METHOD)
            return
        try:
            self._calls[event.stream] = _Open(method, self._most)
        except Exception as error:
            failure = method.failed(error)
            self._http2.finish(event.stream, grpc.HEADERS + grpc.status(failure.status, failure.text))

    def _on_data(self, stream: int, data: bytes) -> None:
        known = self._calls.get(stream)
        if known is None:
            return
        try:
            for message in known.messages.feed(data):
                answer = known.call.answer(message)
                if answer is not None:
                    self._send(stream, known, answer)
                if known.call.over:
                    self._finish(stream, known, grpc.OK, "completed")
                    return
        except grpc.GrpcFault as fault:
            self._finish(stream, known, grpc.status(fault.status, fault.text), "protocol_violation")
        except Exception as error:
            failure = known.method.failed(error)
            self._finish(stream, known, grpc.status(failure.status, failure.text), failure.outcome)

    def _on_ended(self, stream: int) -> None:
        known = self._calls.get(stream)
        if known is None:
            return
        if known.messages.pending:
            self._finish(stream, known, grpc.status(grpc.INTERNAL, "a message cut short"), "protocol_violation")
        else:
            self._finish(stream, known, grpc.OK, "completed")

    def _send(self, stream: int, known: _Open, answer: bytes) -> None:
        if not known.answered:
            known.answered = True
            self._http2.respond(stream, grpc.HEADERS)
        self._http2.send(stream, grpc.framed(answer))

    def _finish(self, stream: int, known: _Open, trailers: bytes, outcome: str) -> None:
        """Without an answer before them, headers and trailers are one."""
        self._http2.finish(stream, trailers if known.answered else grpc.HEADERS + trailers)
        self._end(stream, outcome)

    def _end(self, stream: int, outcome: str) -> None:
        known = self._calls.pop(stream, None)
        if known is None:
            return
        try:
            known.call.ended(outcome)
        except Exception as error:  # the other calls of the connection go on
            log.error("the end of a call failed: %s", type(error).__name__)

    def _end_all(self) -> None:
        for stream in tuple(self._calls):
            self._end(stream, "cancelled")

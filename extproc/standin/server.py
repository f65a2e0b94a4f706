"""The server: it reads a request, lets an API answer it, remembers it and writes the reply."""

from __future__ import annotations

import asyncio
from itertools import count

import msgspec
from aiohttp import WSMsgType, web

from extproc.standin import faults, metrics_page
from extproc.standin.bodies import MAX_BODY_BYTES
from extproc.standin.echo import flatten, granted_tokens
from extproc.standin.faults import NO_FAULTS
from extproc.standin.memory import Memory
from extproc.standin.receipt import Received, receive
from extproc.standin.replies import Binary, Plain, Reply, Stream, encode, encode_events, openai_error
from extproc.standin.routes import respond

MAX_HEADER_BYTES = 96 * 1024
"""Of one header: above the 60 KiB a proxy lets through, so that the stand-in is never the one to refuse."""

SHUTDOWN_S = 1.0
"""How long open answers may take when the server ends."""

_JSON = {"Content-Type": "application/json", "Server": "stand-in"}
_EVENTS = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "Server": "stand-in"}
_MEMORY_PATH = "/__received"


async def start(host: str, port: int, *, delay_s: float = 0.0) -> web.AppRunner:
    """Listen; `runner.addresses` says where, `runner.cleanup()` ends it."""
    runner = web.AppRunner(
        build(delay_s=delay_s),
        access_log=None,
        auto_decompress=False,  # the report is about the bytes that came, not about what they decode to
        max_line_size=MAX_HEADER_BYTES,
        max_field_size=MAX_HEADER_BYTES,
        max_headers=1024,
        shutdown_timeout=SHUTDOWN_S,
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, backlog=1024).start()
    except BaseException:
        await runner.cleanup()
        raise
    return runner


def build(*, delay_s: float = 0.0) -> web.Application:
    """The application, one instance of which is one engine with a memory of its own."""
    app = web.Application(client_max_size=MAX_BODY_BYTES)
    app.router.add_route("*", "/{path:.*}", Engine(delay_s).handle)
    return app


class Engine:
    """One stand-in engine: `delay_s` passes before a plain answer and between the events of a stream."""

    def __init__(self, delay_s: float = 0.0) -> None:
        self._delay_s = delay_s
        self._memory = Memory()
        self._faults = NO_FAULTS
        self._numbers = count()
        self._running = 0
        self._finished = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer any request."""
        if request.path.startswith(_MEMORY_PATH):
            return self._recall(request)
        if request.path == faults.PATH:
            return await self._set_faults(request)
        if request.path == metrics_page.PATH:
            return web.Response(text=metrics_page.page(running=self._running, finished=self._finished))
        self._running += 1
        try:
            return await self._handle(request)
        finally:
            self._running -= 1
            self._finished += 1

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            reply = openai_error(413, f"The body is larger than {MAX_BODY_BYTES} bytes", "body_too_large")
            return _json(reply.status, encode(reply.document, self._remember(request, b"").report()))
        received = receive(request.method, request.path, request.raw_path, request.raw_headers, body)
        if _is_websocket(received):
            self._memory.keep(received)
            return await _echo_frames(request)
        return await self._reply(request, received)

    def _remember(self, request: web.Request, body: bytes) -> Received:
        received = receive(request.method, request.path, request.raw_path, request.raw_headers, body)
        self._memory.keep(received)
        return received

    async def _reply(self, request: web.Request, received: Received) -> web.StreamResponse:
        """Remembered before the first byte is sent: who has the answer finds the request."""
        reply = respond(received)
        self._memory.keep(received)
        if self._faults is not NO_FAULTS and request.method == "POST":
            if self._faults.delay_ms:
                await asyncio.sleep(self._faults.delay_ms / 1000)
            reply = self._as_told(reply, received, next(self._numbers))
        if isinstance(reply, Stream):
            return await self._stream(request, received, reply)
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
        if isinstance(reply, Plain):
            return _json(reply.status, encode(reply.document, received.report()))
        return _binary(reply)

    def _as_told(self, reply: Reply, received: Received, number: int) -> Reply:
        told = self._faults
        if told.fails(number):
            return openai_error(told.status, "As it was told to.", "fault")
        if told.lengths and isinstance(reply, Plain):
            granted = granted_tokens(flatten(received.params))
            return Plain(faults.lengthened(reply.document, told.lengths[number % len(told.lengths)], granted))
        return reply

    async def _stream(self, request: web.Request, received: Received, reply: Stream) -> web.StreamResponse:
        response = web.StreamResponse(headers=_EVENTS)
        await response.prepare(request)
        for number, event in enumerate(encode_events(reply, received.report())):
            if number and self._delay_s:
                await asyncio.sleep(self._delay_s)
            await response.write(event)
        await response.write_eof()
        return response

    async def _set_faults(self, request: web.Request) -> web.Response:
        """PUT sets them, DELETE ends them."""
        try:
            self._faults = faults.read(await request.read()) if request.method == "PUT" else NO_FAULTS
        except msgspec.MsgspecError as error:
            return _json(400, msgspec.json.encode({"error": str(error)}))
        return _json(200, msgspec.json.encode(self._faults))

    def _recall(self, request: web.Request) -> web.Response:
        """The memory, for tests on the engine's own port."""
        rest = request.path.removeprefix(_MEMORY_PATH)
        if not rest and request.method == "GET":
            return _json(200, self._memory.reports())
        if not rest and request.method == "DELETE":
            return _json(200, b'{"cleared":%d}' % self._memory.clear())
        body = self._memory.body(rest.removeprefix("/body/")) if request.method == "GET" else None
        if body is None:
            return _json(404, b'{"error":"not held"}')
        return web.Response(body=body, headers={"Content-Type": "application/octet-stream"})


def _json(status: int, body: bytes) -> web.Response:
    return web.Response(status=status, body=body, headers=_JSON)


def _binary(reply: Binary) -> web.Response:
    return web.Response(body=reply.body, headers={**reply.headers, "Server": "stand-in"})


def _is_websocket(received: Received) -> bool:
    upgrade = received.header("upgrade").lower() == "websocket"
    return upgrade and received.method == "GET" and received.path.startswith("/v1/")


async def _echo_frames(request: web.Request) -> web.StreamResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for message in socket:
        if message.type is WSMsgType.TEXT:
            await socket.send_str(message.data)
        elif message.type is WSMsgType.BINARY:
            await socket.send_bytes(message.data)
    return socket

"""The fast transport over real sockets: with gRPC's own client, and with clients that keep to no rule."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
import uvloop

from extproc.codec import grpc_messages
from extproc.codec.grpc_messages import framed
from extproc.codec.http2 import PREFACE
from extproc.codec.http2_frames import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    MAX_WINDOW,
    PING,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Code,
    block,
    settings,
    uint32,
)
from extproc.edge import http2_server
from extproc.edge.http2_server import Http2Server, _Peer
from tests.codec.http2_peer import FIELDS, METHOD, Frame, headers, parse, raw

MARKER = "MARKER"
MOST = 20 << 20
PATIENCE_S = 60
"""A bound for what hangs; nothing waits for it."""


class Failure(NamedTuple):
    status: int
    text: str
    outcome: str


class Call:
    """Does what a message says."""

    def __init__(self, told: dict[int, list[str]]) -> None:
        self.number = len(told)
        self.told = told
        self.over = False
        told[self.number] = []

    def answer(self, message: bytes) -> bytes | None:
        what, _, rest = message.partition(b" ")
        match what:
            case b"nothing":
                return None
            case b"fail":
                raise RuntimeError(MARKER)
            case b"last":
                self.over = True
            case b"large":
                return b"x" * int(rest)
        return message

    def ended(self, outcome: str) -> None:
        self.told[self.number].append(outcome)


class Method:
    """`outcomes`: of every call, what it was told of its end."""

    def __init__(self) -> None:
        self.outcomes: dict[int, list[str]] = {}

    def open(self) -> Call:
        return Call(self.outcomes)

    def failed(self, error: Exception) -> Failure:
        return Failure(grpc_messages.INTERNAL, f"internal: {type(error).__name__}, 100 % é", "failed")

    def ended(self) -> list[str]:
        """Of every call its outcome: it has one, and once."""
        assert all(len(each) == 1 for each in self.outcomes.values()), self.outcomes
        return [outcome for each in self.outcomes.values() for outcome in each]

    def open_calls(self) -> int:
        return sum(not each for each in self.outcomes.values())


def on_both_loops(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """asyncio's own loop and uvloop, which serves: their transports differ."""

    @pytest.mark.parametrize("loops", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
    @functools.wraps(test)
    def run(loops: Callable[[], asyncio.AbstractEventLoop], **given: Any) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(PATIENCE_S):
                await test(**given)

        with asyncio.Runner(loop_factory=loops) as runner:
            runner.run(bounded())

    own = inspect.signature(test)
    loops = inspect.Parameter("loops", inspect.Parameter.KEYWORD_ONLY)
    run.__signature__ = own.replace(parameters=[*own.parameters.values(), loops])  # type: ignore[attr-defined]
    return run


class Served:
    """A server, its method, and where it listens."""

    def __init__(self, path: Path, method: Method | None = None) -> None:
        self.path = path
        self.method = method or Method()
        self.server = Http2Server({METHOD.encode(): self.method}, max_message_bytes=MOST)

    def channel(self, **more: Any) -> grpc.aio.Channel:
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        return grpc.aio.insecure_channel(f"unix:{self.path}", options=options, **more)

    async def raw(self, *said: bytes) -> Raw:
        client = Raw()
        await client.connect(self.path)
        await client.say(*said)
        return client

    async def peer(self) -> _Peer:
        await until(lambda: len(self.server._open) == 1)
        return next(iter(self.server._open))

    async def paused(self) -> _Peer:
        """The peer, once no more is written to it."""
        peer = await self.peer()
        await until(lambda: peer._paused)
        return peer

    def stopping(self) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(self.server.stop(PATIENCE_S))


@asynccontextmanager
async def serving(method: Method | None = None) -> AsyncIterator[Served]:
    with tempfile.TemporaryDirectory() as directory:
        served = Served(Path(directory) / "s", method)
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(served.path))
        await served.server.start(listening)
        yield served
        await served.server.stop(0)
        await until(lambda: not served.server._open)


async def until(seen: Callable[[], bool]) -> None:
    while not seen():
        await asyncio.sleep(0.001)


MET = PREFACE + settings() + raw(SETTINGS, ACK, 0, b"")
WIDE = raw(WINDOW_UPDATE, 0, 0, uint32(MAX_WINDOW - 65_535)) + settings((INITIAL_WINDOW_SIZE, MAX_WINDOW))


def said(content: bytes, stream: int = 1, flags: int = 0) -> bytes:
    return raw(DATA, flags, stream, framed(content))


class Raw:
    """A socket of a client: it says what it likes, and reads when it likes."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.setblocking(False)
        self._rest = b""
        self.heard: list[Frame] = []
        self.closed = False

    async def connect(self, path: Path) -> None:
        await asyncio.get_running_loop().sock_connect(self._socket, str(path))

    async def say(self, *parts: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self._socket, b"".join(parts))

    def push(self, content: bytes) -> int:
        """As many of the bytes as the other side takes now."""
        try:
            return self._socket.send(content)
        except BlockingIOError:
            return 0

    async def hear(self, seen: Callable[[list[Frame]], bool] = lambda _: False) -> list[Frame]:
        """All frames so far, once they are what is waited for, or the end."""
        while not self.closed and not (self.heard and seen(self.heard)):
            data = await asyncio.get_running_loop().sock_recv(self._socket, 1 << 18)
            self.closed = not data
            data, at = self._rest + data, 0
            while len(data) - at >= 9 and len(data) >= (end := at + 9 + int.from_bytes(data[at : at + 3], "big")):
                at = end
            self.heard += parse(data[:at])
            self._rest = data[at:]
        return self.heard

    async def ended(self, stream: int = 1) -> list[Frame]:
        """What was said on a stream, up to its end."""
        frames = await self.hear(lambda heard: any(at.stream == stream and at.flags & END_STREAM for at in heard))
        return [each for each in frames if each.stream == stream]

    async def reset(self, stream: int = 1) -> list[Frame]:
        """The same, of one the client itself has not ended: it is told to say no more."""
        frames = await self.hear(lambda heard: any(at.stream == stream and at.kind == RST_STREAM for at in heard))
        return [each for each in frames if each.stream == stream]

    async def closing(self) -> list[Frame]:
        """All frames until the server closes."""
        return await self.hear()

    def half_close(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()


def body(frames: list[Frame], stream: int = 1) -> bytes:
    return b"".join(each.payload for each in frames if each.kind == DATA and each.stream == stream)


def last_headers(frames: list[Frame]) -> bytes:
    return [each.payload for each in frames if each.kind == HEADERS][-1]


def trailers(code: int, text: bytes) -> bytes:
    return block([(b"grpc-status", b"%d" % code), (b"grpc-message", text)])


@contextmanager
def quiet(caplog: pytest.LogCaptureFixture, *lines: str) -> Iterator[None]:
    """The log holds these lines, and nothing of any other."""
    with caplog.at_level(logging.INFO):
        yield
    assert [f"{record.levelname} {record.getMessage()}" for record in caplog.records] == list(lines)
    assert MARKER not in caplog.text


# --- gRPC's own client


async def talk(call: Any, *messages: bytes) -> list[bytes]:
    """All messages, half-close, and every answer."""
    for message in messages:
        await call.write(message)
    await call.done_writing()
    return await answers(call)


async def answers(call: Any) -> list[bytes]:
    found = []
    while (answer := await call.read()) is not grpc.aio.EOF:
        found.append(answer)
    return found


@on_both_loops
async def test_messages_are_answered_one_by_one() -> None:
    async with serving() as served, served.channel() as channel:
        call = channel.stream_stream(METHOD)()
        for message in (b"a", b"", b"b" * 100_000):
            await call.write(message)
            assert await call.read() == message
        assert await talk(call, b"nothing", b"b", b"nothing") == [b"b"]
        assert await call.code() is grpc.StatusCode.OK
        assert served.method.ended() == ["completed"]


@on_both_loops
async def test_a_call_that_says_nothing() -> None:
    async with serving() as served, served.channel() as channel:
        call = channel.stream_stream(METHOD)()
        assert await talk(call) == []
        assert await call.code() is grpc.StatusCode.OK
        assert served.method.ended() == ["completed"]


@on_both_loops
async def test_the_server_ends_a_call_that_is_over() -> None:
    async with serving() as served, served.channel() as channel:
        call = channel.stream_stream(METHOD)()
        await call.write(b"last")
        assert await answers(call) == [b"last"]
        assert await call.code() is grpc.StatusCode.OK
        assert served.method.ended() == ["completed"]


async def fails(call: Any, *messages: bytes) -> tuple[grpc.StatusCode, str]:
    """The last message is what fails: gRPC's client forgets the status where it was still writing."""
    for message in messages:
        await call.write(message)
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await answers(call)
    return failure.value.code(), failure.value.details() or ""


@on_both_loops
async def test_a_method_nobody_serves() -> None:
    async with serving() as served, served.channel() as channel:
        for path in ("/a.Service/Other", "/", METHOD + "x", METHOD.upper()):
            call = channel.stream_stream(path)()
            assert await fails(call) == (grpc.StatusCode.UNIMPLEMENTED, "no such method")
        assert served.method.ended() == []


@on_both_loops
async def test_an_answer_that_fails() -> None:
    async with serving() as served, served.channel() as channel:
        for messages in ((b"fail",), (b"a", b"fail"), (b"a", b"nothing", b"a", b"fail")):
            code, text = await fails(channel.stream_stream(METHOD)(), *messages)
            assert (code, text) == (grpc.StatusCode.INTERNAL, "internal: RuntimeError, 100 % é")
        assert served.method.ended() == ["failed"] * 3


@on_both_loops
async def test_a_call_that_cannot_be_opened() -> None:
    class Shut(Method):
        def open(self) -> Call:
            if self.outcomes:
                raise ValueError(MARKER)
            return super().open()

    async with serving(Shut()) as served, served.channel() as channel:
        first = channel.stream_stream(METHOD)()
        await first.write(b"a")
        assert await first.read() == b"a"
        code, text = await fails(channel.stream_stream(METHOD)())
        assert (code, text) == (grpc.StatusCode.INTERNAL, "internal: ValueError, 100 % é")
        assert await talk(first, b"b") == [b"b"]
        assert served.method.ended() == ["completed"]


@on_both_loops
async def test_an_end_that_fails_ends_no_other_call(caplog: pytest.LogCaptureFixture) -> None:
    class Stumbling(Call):
        def ended(self, outcome: str) -> None:
            super().ended(outcome)
            raise ValueError(MARKER)

    class Shaky(Method):
        def open(self) -> Call:
            return Stumbling(self.outcomes)

    with quiet(caplog, *["ERROR the end of a call failed: ValueError"] * 3):
        async with serving(Shaky()) as served:
            client = await served.raw(MET, headers(1), headers(3), headers(5), said(b"last", 3))
            assert body(await client.ended(3), 3) == framed(b"last")
            assert served.method.outcomes == {0: [], 1: ["completed"], 2: []}
            client.close()
            await until(lambda: not served.method.open_calls())
            assert served.method.ended() == ["cancelled", "completed", "cancelled"]


@on_both_loops
async def test_compressed_messages() -> None:
    async with serving() as served, served.channel(compression=grpc.Compression.Gzip) as channel:
        code, _ = await fails(channel.stream_stream(METHOD)(), b"a" * 10_000)
        assert code is grpc.StatusCode.UNIMPLEMENTED
        assert served.method.ended() == ["protocol_violation"]


@on_both_loops
async def test_sixteen_mebibytes_each_way() -> None:
    content = bytes(range(256)) * (1 << 16)
    async with serving() as served, served.channel() as channel:
        assert await talk(channel.stream_stream(METHOD)(), content, b"small") == [content, b"small"]
        assert served.method.ended() == ["completed"]


@on_both_loops
async def test_large_answers_of_many_streams() -> None:
    async with serving() as served, served.channel() as channel:
        calls = [channel.stream_stream(METHOD)() for _ in range(8)]
        found = await asyncio.gather(
            *(talk(call, b"large %d" % (number << 18), b"last") for number, call in enumerate(calls))
        )
        assert [len(answer) for answer, _ in found] == [number << 18 for number in range(8)]
        assert served.method.ended() == ["completed"] * 8


@on_both_loops
async def test_many_streams_over_one_connection() -> None:
    async with serving() as served, served.channel() as channel:
        method = channel.stream_stream(METHOD)
        found = await asyncio.gather(*(talk(method(), b"%d" % number, b"last") for number in range(300)))
        assert found == [[b"%d" % number, b"last"] for number in range(300)]
        assert len(served.server._open) == 1
        assert served.method.ended() == ["completed"] * 300


@on_both_loops
async def test_a_call_the_client_gives_up() -> None:
    async with serving() as served, served.channel() as channel:
        call = channel.stream_stream(METHOD)()
        await call.write(b"a")
        assert await call.read() == b"a"
        call.cancel()
        await until(lambda: not served.method.open_calls())
        assert served.method.ended() == ["cancelled"]
        assert await talk(channel.stream_stream(METHOD)(), b"b") == [b"b"]


# --- clients of our own


@on_both_loops
async def test_an_answer_as_it_stands_on_the_wire() -> None:
    async with serving() as served:
        client = await served.raw(MET, headers(), said(b"a") + said(b"last"))
        assert await client.reset() == [
            Frame(HEADERS, END_HEADERS, 1, grpc_messages.HEADERS),
            Frame(DATA, 0, 1, framed(b"a")),
            Frame(DATA, 0, 1, framed(b"last")),
            Frame(HEADERS, END_HEADERS | END_STREAM, 1, grpc_messages.OK),
            Frame(RST_STREAM, 0, 1, uint32(Code.NO_ERROR)),
        ]


@pytest.mark.parametrize("method", [b"GET", b"OPTIONS", b"post", None])
@on_both_loops
async def test_another_method_of_http(method: bytes | None) -> None:
    fields = [field for field in FIELDS if field[0] != b":method"] + ([(b":method", method)] if method else [])
    async with serving() as served:
        client = await served.raw(MET, headers(1, fields=block(fields)), said(b"a"))
        end, reset = await client.reset()
        assert end.payload == grpc_messages.HEADERS + trailers(grpc_messages.UNIMPLEMENTED, b"no such method")
        assert reset.kind == RST_STREAM
        assert served.method.ended() == []


@pytest.mark.parametrize("cut", [1, 4, 5, 6, 9])
@on_both_loops
async def test_a_message_cut_short(cut: int) -> None:
    async with serving() as served:
        sent = raw(DATA, END_STREAM, 1, framed(b"whole") + framed(b"cut short")[:cut])
        client = await served.raw(MET, headers(), sent)
        frames = await client.ended()
        assert body(frames) == framed(b"whole")
        assert last_headers(frames) == trailers(grpc_messages.INTERNAL, b"a message cut short")
        assert served.method.ended() == ["protocol_violation"]


@on_both_loops
async def test_what_stands_behind_the_end_of_a_call_is_not_read() -> None:
    async with serving() as served:
        sent = raw(DATA, 0, 1, framed(b"last") + framed(b"fail") + b"\xff" * 9)
        client = await served.raw(MET, headers(), sent, said(b"late"), headers(1, END_HEADERS | END_STREAM))
        frames = await client.ended()
        assert body(frames) == framed(b"last")
        assert last_headers(frames) == grpc_messages.OK
        await client.say(headers(3), said(b"last", 3))
        assert body(await client.ended(3), 3) == framed(b"last")
        assert served.method.ended() == ["completed"] * 2


@on_both_loops
async def test_a_message_too_long() -> None:
    async with serving() as served:
        content = framed(bytes(MOST + 1))
        client = await served.raw(
            MET, headers(), said(b"a"), *(raw(DATA, 0, 1, content[at : at + 9]) for at in (0, 9, 18))
        )
        frames = await client.ended()
        text = b"a message of %d bytes, allowed: %d" % (MOST + 1, MOST)
        assert body(frames) == framed(b"a")
        assert last_headers(frames) == trailers(grpc_messages.RESOURCE_EXHAUSTED, text)
        await client.say(headers(3), said(b"last", 3))
        assert body(await client.ended(3), 3) == framed(b"last")
        assert served.method.ended() == ["protocol_violation", "completed"]


@on_both_loops
async def test_messages_before_a_broken_one_are_answered() -> None:
    async with serving() as served:
        sent = raw(DATA, 0, 1, framed(b"a") + b"\0\xff\xff\xff\xff" + MARKER.encode())
        client = await served.raw(MET, headers(), sent, said(b"more"), said(b"other", 1, END_STREAM))
        frames = await client.ended()
        assert body(frames) == framed(b"a")
        assert b"a message of 4294967295 bytes" in last_headers(frames)
        assert served.method.ended() == ["protocol_violation"]


@on_both_loops
async def test_every_byte_for_itself() -> None:
    async with serving() as served:
        client = await served.raw()
        for byte in MET + headers() + said(b"a") + said(b"last"):
            await client.say(bytes((byte,)))
        assert body(await client.ended()) == framed(b"a") + framed(b"last")


@pytest.mark.parametrize("half", [False, True], ids=["closed", "half_closed"])
@on_both_loops
async def test_a_client_that_vanishes(half: bool, caplog: pytest.LogCaptureFixture) -> None:
    with quiet(caplog):
        async with serving() as served:
            opened = [headers(number) for number in (1, 3, 5)]
            client = await served.raw(
                MET, *opened, said(b"last", 3), said(b"a", 5), raw(DATA, 0, 1, framed(b"cut")[:6])
            )
            await client.hear(lambda frames: body(frames, 5) == framed(b"a"))
            if half:
                client.half_close()
                await client.closing()
            client.close()
            await until(lambda: not served.server._open)
            assert served.method.ended() == ["cancelled", "completed", "cancelled"]


@on_both_loops
async def test_a_client_that_vanishes_without_a_word() -> None:
    async with serving() as served:
        for sent in (b"", PREFACE[:7], PREFACE, MET):
            (await served.raw(sent)).close()
        client = await served.raw(MET, headers(), said(b"last"))
        await client.ended()
        await until(lambda: len(served.server._open) == 1)


@on_both_loops
async def test_a_stream_that_is_reset() -> None:
    async with serving() as served:
        client = await served.raw(MET, headers(1), headers(3))
        await client.say(raw(RST_STREAM, 0, 1, uint32(Code.CANCEL)) * 2, said(b"late"), said(b"last", 3))
        assert body(await client.ended(3), 3) == framed(b"last")
        assert served.method.ended() == ["cancelled", "completed"]
        assert not any(each.stream == 1 for each in client.heard)


@pytest.mark.parametrize(
    ("sent", "line"),
    [
        (f"GET /{MARKER} HTTP/1.1\r\nx: {MARKER}\r\n\r\n".encode(), "no HTTP/2 (PROTOCOL_ERROR)"),
        (MET + headers() + said(b"last " + MARKER.encode()) + headers(0), "headers on stream 0 (PROTOCOL_ERROR)"),
        (
            MET + headers(1, fields=b"\0\x06MARKER\x7f"),
            "headers cannot be read: HPACKDecodingError (COMPRESSION_ERROR)",
        ),
        (MET + MARKER.encode() * 9, "a frame of 5062994 bytes (FRAME_SIZE_ERROR)"),
    ],
    ids=["http1", "stream", "headers", "garbage"],
)
@on_both_loops
async def test_a_broken_peer_is_one_line(sent: bytes, line: str, caplog: pytest.LogCaptureFixture) -> None:
    with quiet(caplog, f"WARNING connection closed: {line}"):
        async with serving() as served:
            client = await served.raw(sent + sent)
            assert (await client.closing())[-1].kind == GOAWAY
            assert served.method.open_calls() == 0
            assert client.closed
            await until(lambda: not served.server._open)


@on_both_loops
async def test_what_came_before_the_break_is_answered() -> None:
    async with serving() as served:
        client = await served.raw(MET, headers(1), headers(3), said(b"last"), bytes(9))
        frames = await client.closing()
        assert body(frames) == framed(b"last")
        assert [each.kind for each in frames if each.stream != 0] == [HEADERS, DATA, HEADERS, RST_STREAM]
        assert frames[-1] == Frame(GOAWAY, 0, 0, uint32(3) + uint32(Code.PROTOCOL_ERROR))
        assert served.method.ended() == ["completed", "cancelled"]


@on_both_loops
async def test_one_broken_peer_is_no_other() -> None:
    async with serving() as served:
        good, bad = [await served.raw(MET, headers()) for _ in range(2)]
        await bad.say(bytes(9))
        await bad.closing()
        await good.say(said(b"last"))
        assert body(await good.ended()) == framed(b"last")
        assert sorted(served.method.ended()) == ["cancelled", "completed"]


# --- clients that do not read


@on_both_loops
async def test_no_more_is_written_than_the_windows_allow() -> None:
    async with serving() as served:
        client = await served.raw(MET)
        for number in range(1, 21, 2):
            await client.say(headers(number), said(b"large 1000000", number), said(b"last", number))
        await until(lambda: len(served.method.outcomes) == 10 and not served.method.open_calls())
        frames = await client.hear(lambda heard: sum(len(at.payload) for at in heard if at.kind == DATA) >= 65_535)
        await client.say(raw(PING, 0, 0, bytes(8)))
        await client.hear(lambda heard: heard[-1].kind == PING)
        assert sum(len(each.payload) for each in frames if each.kind == DATA) == 65_535
        await client.say(WIDE)
        for number in range(1, 21, 2):
            frames = await client.ended(number)
            assert body(frames, number) == framed(b"x" * 1_000_000) + framed(b"last")
        assert served.method.ended() == ["completed"] * 10


@on_both_loops
async def test_a_client_that_reads_late_gets_everything() -> None:
    async with serving() as served:
        client = await served.raw(MET, WIDE, headers(1), said(b"large 3000000"))
        peer = await served.paused()
        await client.say(headers(3), said(b"a", 3), said(b"last", 3), said(b"last"))
        await until(lambda: served.method.outcomes == {0: ["completed"], 1: ["completed"]})
        assert peer._http2.unsent, "it waits here, not in the socket"
        assert body(await client.ended(3), 3) == framed(b"a") + framed(b"last")
        assert body(await client.ended(1), 1) == framed(b"x" * 3_000_000) + framed(b"last")
        assert not peer._paused
        await client.say(headers(5), said(b"last", 5))
        assert body(await client.ended(5), 5) == framed(b"last")


@on_both_loops
async def test_a_client_that_never_reads_is_not_read_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its answers would grow for as long as it asks."""
    monkeypatch.setattr(http2_server, "MAX_UNSENT", 500)
    async with serving() as served:
        client = await served.raw(MET, WIDE)
        peer = await served.peer()
        asked = b"".join(headers(number) + said(b"last", number) for number in range(1, 24_001, 2))
        sent = 0
        while peer._transport.is_reading():
            sent += client.push(asked[sent : sent + 10_000])
            await asyncio.sleep(0)
        assert peer._paused
        while more := client.push(asked[sent : sent + 10_000]):
            sent += more
            await asyncio.sleep(0)
        assert sent < len(asked)
        seen = peer._http2.unsent
        assert 500 < seen < 20_000
        for _ in range(100):
            await asyncio.sleep(0)
        assert peer._http2.unsent == seen
        saying = asyncio.get_running_loop().create_task(client.say(asked[sent:]))
        frames = await client.hear(lambda heard: heard[-1].stream == 23_999 and heard[-1].kind == RST_STREAM)
        await saying
        assert sum(each.kind == DATA for each in frames) == 12_000
        assert served.method.ended() == ["completed"] * 12_000


@on_both_loops
async def test_a_client_that_asks_for_signs_of_life_and_never_reads(caplog: pytest.LogCaptureFixture) -> None:
    with quiet(caplog, "WARNING connection closed: asks, and does not read the answers (ENHANCE_YOUR_CALM)"):
        async with serving() as served:
            client = await served.raw(MET, headers())
            await until(lambda: len(served.method.outcomes) == 1)
            with contextlib.suppress(OSError):  # closed meanwhile
                while served.server._open:
                    client.push(raw(PING, 0, 0, bytes(8)) * 1000)
                    await asyncio.sleep(0)
            await until(lambda: not served.server._open)
            assert served.method.ended() == ["cancelled"]
            client.close()


@on_both_loops
async def test_a_client_that_vanishes_while_it_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2_server, "MAX_UNSENT", 0)
    async with serving() as served:
        client = await served.raw(MET, WIDE, headers(1), said(b"large 3000000"))
        await served.paused()
        await client.say(headers(3))
        await client.say(said(b"a", 3))
        client.close()
        await until(lambda: not served.server._open)
        assert set(served.method.ended()) == {"cancelled"}


# --- the end


@on_both_loops
async def test_idle_peers_are_told_to_go_and_closed() -> None:
    async with serving() as served:
        clients = [await served.raw(sent) for sent in (b"", PREFACE, MET, MET + headers() + said(b"last"))]
        await clients[-1].ended()
        await until(lambda: len(served.server._open) == 4)
        await served.server.stop(PATIENCE_S)
        assert not served.server._open
        for client in clients:
            frames = await client.closing()
            assert frames[-1] == Frame(GOAWAY, 0, 0, uint32(MAX_WINDOW) + uint32(Code.NO_ERROR))
        with pytest.raises(OSError):
            await served.raw()


@on_both_loops
async def test_open_calls_go_on_until_they_end() -> None:
    async with serving() as served:
        client = await served.raw(MET, headers())
        await until(lambda: served.method.open_calls() == 1)
        stopping = served.stopping()
        await client.hear(lambda frames: frames[-1].kind == GOAWAY)
        for number in range(3):
            await client.say(said(b"%d" % number))
            await client.hear(lambda frames, number=number: body(frames).endswith(framed(b"%d" % number)))
            assert not stopping.done()
        await client.say(headers(3), said(b"last", 3))
        assert body(await client.ended(3), 3) == framed(b"last"), "it was on its way"
        await client.say(said(b"last"))
        assert last_headers(await client.ended()) == grpc_messages.OK
        await stopping
        assert served.method.ended() == ["completed"] * 2
        await client.closing()


@on_both_loops
async def test_an_answer_that_waits_for_its_window_is_waited_for() -> None:
    async with serving() as served:
        client = await served.raw(MET, headers(), said(b"large 200000"), said(b"last"))
        await until(lambda: served.method.outcomes == {0: ["completed"]})
        peer, stopping = await served.peer(), served.stopping()
        await until(lambda: peer._leaving)
        for _ in range(4):
            served.server._drain()
        assert not stopping.done()
        await client.say(WIDE)
        assert body(await client.ended()) == framed(b"x" * 200_000) + framed(b"last")
        await stopping


@on_both_loops
async def test_an_answer_that_is_not_read_yet_is_waited_for() -> None:
    async with serving() as served:
        client = await served.raw(MET, WIDE, headers(), said(b"large 3000000"))
        peer = await served.paused()
        await client.say(said(b"last"))
        await until(lambda: served.method.outcomes == {0: ["completed"]})
        stopping = served.stopping()
        await until(lambda: peer._leaving)
        for _ in range(4):
            served.server._drain()
        assert body(await client.ended()) == framed(b"x" * 3_000_000) + framed(b"last")
        await stopping


@on_both_loops
async def test_a_call_that_does_not_end_is_cut_off() -> None:
    async with serving() as served:
        client = await served.raw(MET, headers(), said(b"a"))
        await until(lambda: served.method.open_calls() == 1)
        await served.server.stop(0.1)
        assert served.method.ended() == ["cancelled"]
        frames = await client.closing()
        assert body(frames) == framed(b"a")
        assert frames[-1].kind == GOAWAY


@on_both_loops
async def test_nobody_waits_for_a_peer_that_does_not_read() -> None:
    async with serving() as served:
        client = await served.raw(MET, WIDE, headers(), said(b"large 3000000"))
        await served.paused()
        await served.server.stop(0)
        await until(lambda: not served.server._open)
        assert served.method.ended() == ["cancelled"]
        client.close()


@on_both_loops
async def test_a_peer_that_comes_while_the_server_goes_is_told_so() -> None:
    async with serving() as served:
        served.server._drain()
        client = await served.raw(MET, headers(), said(b"last"))
        await client.ended()
        await served.server.stop(PATIENCE_S)
        assert (await client.closing())[-1].kind == GOAWAY


@on_both_loops
async def test_a_server_that_never_started() -> None:
    await Http2Server({}, max_message_bytes=1).stop(PATIENCE_S)


@on_both_loops
async def test_grpcs_own_client_goes_when_it_is_told() -> None:
    async with serving() as served, served.channel() as channel:
        call = channel.stream_stream(METHOD)()
        await call.write(b"a")
        assert await call.read() == b"a"
        peer, stopping = await served.peer(), served.stopping()
        await until(lambda: peer._leaving)
        assert await talk(call, b"last") == [b"last"]
        await stopping
        assert served.method.ended() == ["completed"]


@on_both_loops
async def test_over_tcp() -> None:
    method = Method()
    server = Http2Server({METHOD.encode(): method}, max_message_bytes=MOST)
    listening = socket.create_server(("127.0.0.1", 0))
    await server.start(listening)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{listening.getsockname()[1]}") as channel:
        assert await talk(channel.stream_stream(METHOD)(), b"a", b"last") == [b"a", b"last"]
    await server.stop(PATIENCE_S)
    assert method.ended() == ["completed"]

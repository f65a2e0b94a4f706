"""The servicer: bytes in, bytes out, and how a stream ends."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from extproc.codec.wire import ext_proc_pb2 as pb
from extproc.edge import grpc_server
from extproc.edge.ext_proc import PATH, ExtProcServicer, ProtocolViolation, failed, handler, where
from extproc.edge.http2_server import Http2Server
from extproc.model.commands import RecordDecision, RecordPass, RecordReject
from extproc.model.names import Dialect
from extproc.request.headers import Headers
from extproc.snapshot import Snapshot
from tests.decide.worlds import world

MARKER = "MARKER"


class Notes:
    """A recorder that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.open = 0
        self.outcomes: list[str] = []
        self.seconds: list[float] = []

    def decided(self, record: RecordDecision) -> None:
        self.told.append(f"decided {record.decision.tier}")

    def passed(self, record: RecordPass) -> None:
        self.told.append(f"passed {record.reason}")

    def rejected(self, record: RecordReject) -> None:
        self.told.append(f"rejected {record.status} {record.reason}")

    def decision_seconds(self, seconds: float) -> None:
        self.seconds.append(seconds)

    def message_received(self, kind: str) -> None:
        pass

    def settle(self) -> None:
        self.settled = list(self.told)

    def stream_opened(self) -> None:
        self.open += 1

    def stream_ended(self, outcome: str) -> None:
        self.open -= 1
        self.outcomes.append(outcome)


def servicer(notes: Notes, current: Any = world) -> ExtProcServicer:
    ticks = itertools.count()
    return ExtProcServicer(current=current, recorder=notes, wall=lambda: 5.0, timer=lambda: float(next(ticks)))


def headers(path: str = "/v1/chat/completions", method: str = "POST", end: bool = False) -> bytes:
    message = pb.ProcessingRequest()
    for name, value in ((":method", method), (":path", path)):
        message.request_headers.headers.headers.add(key=name, raw_value=value.encode())
    message.request_headers.end_of_stream = end
    return bytes(message.SerializeToString())


def body(content: bytes, end: bool = True) -> bytes:
    message = pb.ProcessingRequest()
    message.request_body.body = content
    message.request_body.end_of_stream = end
    return bytes(message.SerializeToString())


def read(answer: bytes | None) -> Any:
    assert answer is not None
    return pb.ProcessingResponse.FromString(answer)


# --- one message


def test_a_decision_is_recorded_and_answered() -> None:
    notes = Notes()
    call = servicer(notes).open()
    assert read(call.answer(headers())).WhichOneof("response") == "request_headers"
    answer = read(call.answer(body(b"{}")))
    assert answer.request_body.response.body_mutation.body == b'{"temperature":0.7,"max_tokens":256}'
    assert notes.told == ["decided normal"]
    assert call.over
    assert call.answer(body(b"{}")) is None


def test_what_passes_is_recorded() -> None:
    notes = Notes()
    answer = read(servicer(notes).open().answer(headers("/v1/models", "GET", end=True)))
    assert answer.WhichOneof("response") == "request_headers"
    assert notes.told == ["passed no_dialect"]


def test_a_rejection_is_recorded_and_answered() -> None:
    notes = Notes()
    call = servicer(notes).open()
    call.answer(headers())
    answer = read(call.answer(body(b"[]")))
    assert answer.immediate_response.status.code == 400
    assert answer.immediate_response.details == "llm_invalid_json"
    assert notes.told == ["rejected 400 invalid_json"]


def test_a_broken_protocol_has_no_answer() -> None:
    notes = Notes()
    with pytest.raises(ProtocolViolation, match="RequestBodyReceived in state start"):
        servicer(notes).open().answer(body(b"{}"))
    assert notes.told == []


def test_a_failed_stream_is_logged_with_its_request(caplog: pytest.LogCaptureFixture) -> None:
    first = pb.ProcessingRequest.FromString(headers())
    first.request_headers.headers.headers.add(key="x-request-id", raw_value=b"r-1")
    with pytest.raises(ProtocolViolation) as caught:
        call = servicer(Notes()).open()
        call.answer(first.SerializeToString())
        call.answer(headers())
    failed(caught.value)
    (line,) = caplog.records
    assert getattr(line, "request_id", None) == "r-1"


def test_what_fails_before_its_headers_has_no_request(caplog: pytest.LogCaptureFixture) -> None:
    failed(RuntimeError(MARKER))
    (line,) = caplog.records
    assert getattr(line, "request_id", None) == ""
    assert MARKER not in caplog.text


class Traced:
    """A tracer that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[object, bytes | None, str, float]] = []

    def decided(
        self, record: RecordDecision | RecordReject, headers: Headers, dialect: Dialect | None, *,
        request_id: str, started_s: float, ended_s: float,
    ) -> None:  # fmt: skip
        self.told.append((type(record), headers.one("traceparent"), request_id, ended_s - started_s))


@pytest.mark.parametrize(("content", "kind"), [(b"{}", RecordDecision), (b"[]", RecordReject)])
def test_a_tracer_is_told_of_decisions_when_the_stream_ends(content: bytes, kind: type) -> None:
    first = pb.ProcessingRequest.FromString(headers())
    for name, value in (("x-request-id", b"r-1"), ("traceparent", b"00-a")):
        first.request_headers.headers.headers.add(key=name, raw_value=value)
    tracer, clock = Traced(), itertools.count()
    plain = servicer(Notes())
    call = ExtProcServicer(
        current=plain.current, recorder=plain.recorder, wall=lambda: next(clock), timer=plain.timer, tracer=tracer
    ).open()
    call.answer(first.SerializeToString())
    call.answer(body(content))
    assert tracer.told == []
    call.ended("completed")
    ((told, parent, request_id, lasted),) = tracer.told
    assert (told, parent, request_id) == (kind, b"00-a", "r-1")
    assert lasted > 0


def test_a_tracer_hears_nothing_of_what_passes() -> None:
    tracer, plain = Traced(), servicer(Notes())
    call = ExtProcServicer(
        current=plain.current, recorder=plain.recorder, wall=plain.wall, timer=plain.timer, tracer=tracer
    ).open()
    call.answer(headers(method="GET", end=True))
    call.ended("completed")
    assert tracer.told == []


def test_where_names_file_and_line_only() -> None:
    try:
        raise ValueError(MARKER)
    except ValueError as error:
        found = where(error)
    assert found.startswith("test_ext_proc.py:")
    assert MARKER not in found
    assert where(ValueError()) == "unknown"


# --- whole streams over a socket


async def grpc_aio(served: ExtProcServicer, address: str) -> Callable[[], Awaitable[None]]:
    server = grpc_server.server(1 << 20)
    server.add_generic_rpc_handlers((handler(served),))
    grpc_server.bind(server, address)
    await server.start()
    return lambda: server.stop(0)


async def fast(served: ExtProcServicer, address: str) -> Callable[[], Awaitable[None]]:
    server = Http2Server({PATH: served}, max_message_bytes=1 << 21)
    await server.start(grpc_server.listening(address)[0])
    return lambda: server.stop(0)


Serving = Callable[..., AbstractAsyncContextManager[Any]]


@pytest.fixture(params=[grpc_aio, fast])
def serving(request: pytest.FixtureRequest, tmp_path: Path) -> Serving:
    """`async with serving(notes, current) as method`: a stream is opened with `method()`."""

    @asynccontextmanager
    async def serve(notes: Notes, current: Any = world) -> AsyncIterator[Any]:
        address = f"unix:{tmp_path / 's'}"
        stop = await request.param(servicer(notes, current), address)
        async with grpc.aio.insecure_channel(address) as channel:
            yield channel.stream_stream(PATH.decode())
        await stop()

    return serve


async def talk(call: Any, messages: Iterable[bytes]) -> list[Any]:
    """All messages, half-close, and every answer."""
    for message in messages:
        await call.write(message)
    await call.done_writing()
    return [pb.ProcessingResponse.FromString(answer) async for answer in call]


async def ended(notes: Notes) -> None:
    async with asyncio.timeout(5):
        while notes.open:
            await asyncio.sleep(0.01)


async def test_a_stream_that_envoy_ends_is_completed(serving: Serving) -> None:
    notes = Notes()
    async with serving(notes) as method:
        call = method()
        answers = await talk(call, [headers(), body(b"{}")])
        assert [answer.WhichOneof("response") for answer in answers] == ["request_headers", "request_body"]
        assert await call.code() is grpc.StatusCode.OK
        await ended(notes)
    assert notes.outcomes == ["completed"]
    assert notes.seconds == [2.0], "one tick a message"


async def test_a_stream_without_messages_is_completed(serving: Serving) -> None:
    notes = Notes()
    async with serving(notes) as method:
        assert await talk(method(), []) == []
        await ended(notes)
    assert notes.outcomes == ["completed"]


@pytest.mark.parametrize(
    "messages",
    [
        [headers(), body(b"{}")],
        [headers(), body(b"[]")],
        [headers("/v1/models", "GET", end=True)],
        [headers("/v1/audio/x"), body(b"x", end=False), body(b"y")],
    ],
    ids=["decided", "rejected", "passed", "passed_in_pieces"],
)
async def test_a_stream_ends_with_the_request_though_envoy_leaves_it_open(
    serving: Serving, messages: list[bytes]
) -> None:
    notes = Notes()
    async with serving(notes) as method:
        call = method()
        for number, message in enumerate(messages):
            assert notes.outcomes == [], number
            await call.write(message)
            assert await call.read() is not grpc.aio.EOF
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK
        await ended(notes)
    assert notes.outcomes == ["completed"]


async def test_a_cancelled_stream_is_a_normal_end(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    notes = Notes()
    async with serving(notes) as method:
        call = method()
        await call.write(headers())
        await call.read()
        assert notes.open == 1
        call.cancel()
        await ended(notes)
    assert len(notes.outcomes) == 1
    assert notes.outcomes[0] in ("cancelled", "completed")
    assert [record for record in caplog.records if record.name == "extproc.ext_proc"] == []


@pytest.mark.parametrize(
    "messages",
    [[body(b"{}")], [headers(), headers()], [b""], [b"\xff\xff\xff"], [headers("/x"), b"\x0a"]],
    ids=["body_first", "two_headers", "empty", "no_message", "no_message_later"],
)
async def test_a_broken_protocol_aborts_the_stream(
    serving: Serving, messages: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    notes = Notes()
    async with serving(notes) as method:
        call = method()
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await talk(call, messages)
        assert failure.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        await ended(notes)
    assert notes.outcomes == ["protocol_violation"]
    assert [record.levelname for record in caplog.records if record.name == "extproc.ext_proc"] == ["WARNING"]


async def test_a_bug_of_ours_fails_the_stream_and_tells_nothing(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> Snapshot:
        raise RuntimeError(MARKER)

    notes = Notes()
    async with serving(notes, broken) as method:
        call = method()
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await talk(call, [headers()])
        assert failure.value.code() is grpc.StatusCode.INTERNAL
        assert failure.value.details() == "internal error"
        await ended(notes)
    assert notes.outcomes == ["failed"]
    assert MARKER not in caplog.text
    assert "RuntimeError at test_ext_proc.py:" in caplog.text


async def test_many_streams_at_once_leave_none_open(serving: Serving) -> None:
    notes = Notes()
    async with serving(notes) as method:
        conversations = (talk(method(), [headers(), body(b'{"max_tokens":%d}' % i)]) for i in range(1, 101))
        found = await asyncio.gather(*conversations)
        for number, (_, answer) in enumerate(found, 1):
            sent = answer.request_body.response.body_mutation.body
            assert sent.startswith(b'{"max_tokens":%d,' % number)
        await ended(notes)
    assert notes.outcomes == ["completed"] * 100

"""The ext_proc servicer: bytes in, exchange, bytes out.

A stream ends, with OK, as soon as the request is judged. The rejected alternative, leaving the end to Envoy, holds
it until the last byte of the answer: with `failure_mode: closed` a sidecar that restarts then cuts every answer in
flight, though each of them was judged long ago. A failure of ours aborts the stream, and Envoy fails open or closed
as its filter says. Envoy ending a stream first, half-closed or cancelled, is as normal.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import grpc
from google.protobuf.message import DecodeError

from extproc.codec import ext_proc as codec
from extproc.codec.grpc_messages import INTERNAL, INVALID_ARGUMENT
from extproc.exchange import Exchange
from extproc.model.commands import (
    CloseStream,
    Command,
    Continue,
    RecordDecision,
    RecordPass,
    RecordReject,
    Reject,
)
from extproc.model.events import Event
from extproc.model.names import Dialect
from extproc.request.headers import Headers
from extproc.snapshot import Snapshot

log = logging.getLogger("extproc.ext_proc")

PATH = f"/{codec.METHOD_SERVICE}/{codec.METHOD_NAME}".encode()

_CODES = {code.value[0]: code for code in grpc.StatusCode}


class Recorder(Protocol):
    """What the servicer reports: requests by outcome, streams, and its own time per request in seconds."""

    def decided(self, record: RecordDecision) -> None: ...
    def passed(self, record: RecordPass) -> None: ...
    def rejected(self, record: RecordReject) -> None: ...
    def decision_seconds(self, seconds: float) -> None: ...
    def stream_opened(self) -> None: ...
    def stream_ended(self, outcome: str) -> None: ...
    def settle(self) -> None:
        """Make sure of what was recorded, before it is answered."""


class Tracer(Protocol):
    """Told of decisions; the times in seconds since the epoch. Never waits nor raises."""

    def decided(
        self,
        record: RecordDecision | RecordReject,
        headers: Headers,
        dialect: Dialect | None,
        *,
        request_id: str,
        started_s: float,
        ended_s: float,
    ) -> None: ...


class ProtocolViolation(Exception):
    """The peer broke the protocol: nothing can answer its message."""


class ExtProcServicer:
    """Opens streams. `current` gives the snapshot in force, `wall` and `timer` the time in seconds."""

    def __init__(
        self,
        *,
        current: Callable[[], Snapshot],
        recorder: Recorder,
        wall: Callable[[], float],
        timer: Callable[[], float],
        tracer: Tracer | None = None,
    ) -> None:
        self.current = current
        self.recorder = recorder
        self.wall = wall
        self.timer = timer
        self.tracer = tracer

    def open(self) -> Call:
        """A stream begins."""
        return Call(self) if self.tracer is None else TracedCall(self, self.tracer)

    def failed(self, error: Exception) -> Failure:
        """How a stream ends whose `answer` raised."""
        return failed(error)

    async def process(self, _: object, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """One stream over `grpc.aio`, until its request is judged or Envoy ends it."""
        call, outcome = self.open(), "failed"
        try:
            while not call.over and (message := await context.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
                answer = call.answer(message)
                if answer is not None:
                    self.recorder.settle()
                    await context.write(answer)
            outcome = "completed"
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except Exception as error:
            failure = failed(error)
            outcome = failure.outcome
            await context.abort(_CODES[failure.status], failure.text)
        finally:
            call.ended(outcome)


class Call:
    """One stream: a message in, at most one out."""

    __slots__ = ("_exchange", "_seconds", "_servicer")

    def __init__(self, servicer: ExtProcServicer) -> None:
        servicer.recorder.stream_opened()
        self._servicer = servicer
        self._exchange: Exchange = Exchange()
        self._seconds = 0.0

    @property
    def over(self) -> bool:
        """Whether nothing more is owed."""
        return self._exchange.over

    def answer(self, message: bytes) -> bytes | None:
        """The serialized answer to one serialized message; None where nothing is owed. What it raises, `failed`
        makes a status of."""
        servicer, answer = self._servicer, None
        started = servicer.timer()
        try:
            for command in self._exchange.handle(codec.event(message), servicer.current(), now=servicer.wall()):
                answer = execute(command, servicer.recorder) or answer
        except Exception as error:
            error.add_note(self._exchange.request_id)  # for the log line of `failed`
            raise
        self._seconds += servicer.timer() - started
        return answer

    def ended(self, outcome: str) -> None:
        """The stream is over: completed, cancelled, protocol_violation or failed."""
        self._servicer.recorder.stream_ended(outcome)
        if self._seconds:
            self._servicer.recorder.decision_seconds(self._seconds)


class _Noting(Exchange):
    """Remembers what was decided: without tracing there is none, and a decision costs what it did."""

    __slots__ = ("decided",)

    def __init__(self) -> None:
        super().__init__()
        self.decided: RecordDecision | RecordReject | None = None

    def handle(self, event: Event, snapshot: Snapshot, *, now: float) -> list[Command]:
        commands = super().handle(event, snapshot, now=now)
        for command in commands:
            if isinstance(command, RecordDecision | RecordReject):
                self.decided = command
        return commands


class TracedCall(Call):
    """A stream whose decision becomes a span: it lasts from the first message to the end of the stream."""

    __slots__ = ("_noting", "_started_s", "_tracer")

    def __init__(self, servicer: ExtProcServicer, tracer: Tracer) -> None:
        super().__init__(servicer)
        self._exchange = self._noting = _Noting()
        self._tracer = tracer
        self._started_s = servicer.wall()

    def ended(self, outcome: str) -> None:
        super().ended(outcome)
        decided, arrival = self._noting.decided, self._noting.arrival
        if decided is not None and arrival is not None:
            self._tracer.decided(
                decided,
                arrival.headers,
                arrival.target.dialect,
                request_id=self._noting.request_id,
                started_s=self._started_s,
                ended_s=self._servicer.wall(),
            )


def execute(command: Command, recorder: Recorder) -> bytes | None:
    match command:
        case Continue():
            return codec.continued(command)
        case RecordDecision():
            recorder.decided(command)
        case RecordPass():
            recorder.passed(command)
        case RecordReject():
            recorder.rejected(command)
        case Reject():
            return codec.rejected(command)
        case CloseStream():
            raise ProtocolViolation(command.reason)
    return None


class Failure(NamedTuple):
    """How a stream that cannot be answered ends: gRPC's status, its text, and the outcome that is counted."""

    status: int
    text: str
    outcome: str


def failed(error: Exception) -> Failure:
    """Says it in the log, with the request's id and without a byte of it. `Call.answer` notes the id."""
    about = {"request_id": getattr(error, "__notes__", [""])[-1]}
    if isinstance(error, (ProtocolViolation, DecodeError)):
        log.warning(
            "stream aborted: %s", error if isinstance(error, ProtocolViolation) else "no message", extra=about
        )
        return Failure(INVALID_ARGUMENT, "protocol violation", "protocol_violation")
    log.error("stream failed: %s at %s", type(error).__name__, where(error), extra=about)
    return Failure(INTERNAL, "internal error", "failed")


def where(error: BaseException) -> str:
    """File and line of the innermost frame: enough to find a bug, nothing of the request."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else "unknown"


def handler(servicer: ExtProcServicer) -> grpc.GenericRpcHandler[Any, Any]:
    """The servicer under Envoy's method path; messages stay bytes until the codec."""
    method = grpc.stream_stream_rpc_method_handler(servicer.process)
    return grpc.method_handlers_generic_handler(codec.METHOD_SERVICE, {codec.METHOD_NAME: method})

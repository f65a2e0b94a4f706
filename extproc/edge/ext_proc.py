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
from typing import Any, Protocol

import grpc
from google.protobuf.message import DecodeError

from extproc.codec import ext_proc as codec
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
from extproc.snapshot import Snapshot

log = logging.getLogger("extproc.ext_proc")


class Recorder(Protocol):
    """What the servicer reports: requests by outcome, streams, and its own time per request in seconds."""

    def decided(self, record: RecordDecision) -> None: ...
    def passed(self, record: RecordPass) -> None: ...
    def rejected(self, record: RecordReject) -> None: ...
    def decision_seconds(self, seconds: float) -> None: ...
    def stream_opened(self) -> None: ...
    def stream_ended(self, outcome: str) -> None: ...


class ProtocolViolation(Exception):
    """The peer broke the protocol: nothing can answer its message."""


class ExtProcServicer:
    """Serves `Process`. `current` gives the snapshot in force, `wall` and `timer` the time in seconds."""

    def __init__(
        self,
        *,
        current: Callable[[], Snapshot],
        recorder: Recorder,
        wall: Callable[[], float],
        timer: Callable[[], float],
    ) -> None:
        self._current = current
        self._recorder = recorder
        self._wall = wall
        self._timer = timer

    async def process(self, _: object, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """One stream, until its request is judged or Envoy ends it."""
        self._recorder.stream_opened()
        outcome, seconds, exchange, timer = "failed", 0.0, Exchange(), self._timer
        try:
            while not exchange.over and (message := await context.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
                started = timer()
                answer = self.answer(exchange, message)
                seconds += timer() - started
                if answer is not None:
                    await context.write(answer)
            outcome = "completed"
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except (ProtocolViolation, DecodeError) as error:
            outcome = "protocol_violation"
            log.warning("stream aborted: %s", error if isinstance(error, ProtocolViolation) else "no message")
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "protocol violation")
        except Exception as error:
            log.error("stream failed: %s at %s", type(error).__name__, where(error))
            await context.abort(grpc.StatusCode.INTERNAL, "internal error")
        finally:
            self._recorder.stream_ended(outcome)
            if seconds:
                self._recorder.decision_seconds(seconds)

    def answer(self, exchange: Exchange, message: bytes) -> bytes | None:
        """The serialized answer to one serialized message; None where nothing is owed."""
        answer = None
        for command in exchange.handle(codec.event(message), self._current(), now=self._wall()):
            answer = self._execute(command) or answer
        return answer

    def _execute(self, command: Command) -> bytes | None:
        match command:
            case Continue():
                return codec.continued(command)
            case RecordDecision():
                self._recorder.decided(command)
            case RecordPass():
                self._recorder.passed(command)
            case RecordReject():
                self._recorder.rejected(command)
            case Reject():
                return codec.rejected(command)
            case CloseStream():
                raise ProtocolViolation(command.reason)
        return None


def where(error: BaseException) -> str:
    """File and line of the innermost frame: enough to find a bug, nothing of the request."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else "unknown"


def handler(servicer: ExtProcServicer) -> grpc.GenericRpcHandler[Any, Any]:
    """The servicer under Envoy's method path; messages stay bytes until the codec."""
    method = grpc.stream_stream_rpc_method_handler(servicer.process)
    return grpc.method_handlers_generic_handler(codec.METHOD_SERVICE, {codec.METHOD_NAME: method})

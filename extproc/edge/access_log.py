"""The access log servicer: Envoy streams what its requests came to, and gets nothing back.

A message that cannot be read is counted and left out. The rejected alternative, ending the stream with an error,
makes Envoy connect anew and drop what it had buffered: one odd batch would cost the good ones after it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

import grpc
from google.protobuf.message import DecodeError

from extproc.codec import access_log as codec
from extproc.model.telemetry import AccessSample

log = logging.getLogger("extproc.access_log")


class Recorder(Protocol):
    """What the servicer counts besides the samples."""

    def entries_running(self, count: int) -> None: ...
    def entries_unreadable(self, count: int) -> None: ...
    def message_unreadable(self) -> None: ...
    def samples_failed(self) -> None: ...
    def log_opened(self) -> None: ...
    def log_ended(self) -> None: ...


class AccessLogServicer:
    """Serves `StreamAccessLogs` to any number of Envoys at once.

    `record` takes the samples of each message on the event loop's thread; a failure of it is logged and counted.
    """

    def __init__(self, *, record: Callable[[list[AccessSample]], object], recorder: Recorder) -> None:
        self._record = record
        self._recorder = recorder

    async def stream_access_logs(self, _: object, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        """One Envoy worker's stream, until Envoy ends it."""
        self._recorder.log_opened()
        try:
            while (message := await context.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
                self.take(message)
            return codec.RESPONSE
        finally:
            self._recorder.log_ended()

    def take(self, message: bytes) -> None:
        """One serialized StreamAccessLogsMessage, or anything else; raises nothing."""
        try:
            batch = codec.batch(message)
        except DecodeError:
            self._recorder.message_unreadable()
            return
        if batch.running:
            self._recorder.entries_running(batch.running)
        if batch.unreadable:
            self._recorder.entries_unreadable(batch.unreadable)
        if batch.samples:
            self._hand_over(batch.samples)

    def _hand_over(self, samples: list[AccessSample]) -> None:
        try:
            self._record(samples)
        except Exception as error:
            # The type alone: a message may quote what a request said.
            log.error("samples not recorded: %s", type(error).__name__)
            self._recorder.samples_failed()


def handler(servicer: AccessLogServicer) -> grpc.GenericRpcHandler[Any, Any]:
    """The servicer under Envoy's method path; messages stay bytes until the codec."""
    method = grpc.stream_unary_rpc_method_handler(servicer.stream_access_logs)
    return grpc.method_handlers_generic_handler(codec.METHOD_SERVICE, {codec.METHOD_NAME: method})

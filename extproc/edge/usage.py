"""The observer's servicer: reads what Envoy shows of answers, answers nothing.

It serves the method path of the decision servicer, so it stands on a server of its own, the control side's.
The rejected alternative, one server that tells the two apart by the call's metadata, looks at the metadata of
every decision, and at shutdown waits for the end of every answer that is still streaming.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from typing import Any, Protocol

import grpc
from google.protobuf.message import DecodeError

from extproc.codec.ext_proc import METHOD_NAME, METHOD_SERVICE
from extproc.codec.usage import seen
from extproc.model.telemetry import UsageSample
from extproc.usage.observation import Observation, skipped
from extproc.usage.seen import Outcome, Skip, Verdict

log = logging.getLogger("extproc.usage")

SERVER_OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 1 << 14),
)
"""Of the server it stands on: gRPC itself would read ahead megabytes of every stream otherwise."""


class Recorder(Protocol):
    """Told once per stream how it came out, and the sample where there is one; may neither raise nor wait."""

    def usage_ended(self, outcome: Outcome, reason: str) -> None: ...
    def usage(self, sample: UsageSample) -> None: ...


class UsageObserver:
    """Holds `max_held_bytes` for each of at most `max_streams`; streams beyond that are not read."""

    def __init__(self, *, recorder: Recorder, max_held_bytes: int, max_streams: int) -> None:
        self._recorder = recorder
        self._max_held_bytes = max_held_bytes
        self._max_streams = max_streams
        self.open = 0
        """Streams being read."""

    async def process(self, _: object, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """One exchange, until its verdict or until Envoy ends the stream."""
        if self.open >= self._max_streams:
            self._record(skipped(Skip.BUSY))
            return
        self.open += 1
        observation = Observation(self._max_held_bytes)
        try:
            self._record(await _watched(observation, context))
        except asyncio.CancelledError:
            self._record(observation.broken_off())
            raise
        except DecodeError:
            self._record(skipped(Skip.PROTOCOL))
        except Exception as error:
            log.error("answer not read: %s at %s", type(error).__name__, _where(error))
            self._record(skipped(Skip.INTERNAL))
        finally:
            self.open -= 1

    def _record(self, verdict: Verdict) -> None:
        self._recorder.usage_ended(verdict.outcome, verdict.reason)
        if verdict.sample is not None:
            self._recorder.usage(verdict.sample)


async def _watched(observation: Observation, context: grpc.aio.ServicerContext[Any, Any]) -> Verdict:
    """No message has a name here: a stream that waits for its next one would keep it."""
    verdict = None
    while verdict is None:
        verdict = _heard(observation, await context.read())
    return verdict


def _heard(observation: Observation, message: Any) -> Verdict | None:
    if message is grpc.aio.EOF:  # type: ignore[attr-defined]
        return observation.broken_off()
    shown = seen(message)
    return None if shown is None else observation.handle(shown)


def _where(error: BaseException) -> str:
    """File and line of the innermost frame: the message may hold something of the answer."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename.rpartition('/')[2]}:{frame.lineno}"


def handler(observer: UsageObserver) -> grpc.GenericRpcHandler[Any, Any]:
    """The observer under Envoy's method path; messages stay bytes until the codec."""
    method = grpc.stream_stream_rpc_method_handler(observer.process)
    return grpc.method_handlers_generic_handler(METHOD_SERVICE, {METHOD_NAME: method})

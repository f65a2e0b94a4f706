"""Spans to an OTLP/HTTP collector: a bounded queue, batches, few tries. What does not fit is dropped and counted.

Nothing waits for a collector: a decision only puts a value into the queue, and a thread of its own encodes. The
rejected alternative, OpenTelemetry's SDK, copies and checks each attribute where the span ends, in the path that
answers Envoy; and it is six packages for one message.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import Callable, Mapping

import aiohttp

from extproc.codec.otlp import CONTENT_TYPE, encode, rejected
from extproc.model.commands import RecordDecision, RecordReject
from extproc.model.names import Dialect
from extproc.request.headers import Headers
from extproc.tracing.context import Parent, parent
from extproc.tracing.settings import TracingConfig
from extproc.tracing.spans import Span, Value

log = logging.getLogger("extproc.tracing")

TRIES = 3
RETRY_S = 0.5
"""Before the second try; doubled with each."""

AGAIN = frozenset({429, 502, 503, 504})
"""Statuses that OTLP/HTTP calls retryable."""

MAX_ANSWER_BYTES = 1 << 16

Count = Callable[[str, int], None]
"""What became of so many spans: exported, dropped (no room), failed (not taken), rejected (by the collector)."""


class SpanExport:
    """Used from the event loop's thread only. `chance` in [0, 1) picks traces that begin here."""

    def __init__(
        self,
        config: TracingConfig,
        *,
        version: str,
        instance: str,
        count: Count,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._config = config
        self._version = version
        self._resource: Mapping[str, Value] = {
            "service.name": config.service_name,
            "service.version": version,
            "service.instance.id": instance,
        }
        self._count = count
        self._chance = chance
        self._queue: deque[Span] = deque()
        self._full = asyncio.Event()
        self._complained = False

    def decided(
        self,
        record: RecordDecision | RecordReject,
        headers: Headers,
        dialect: Dialect | None,
        *,
        request_id: str,
        started_s: float,
        ended_s: float,
    ) -> None:
        """One decision, if its trace is sampled. Takes no time worth speaking of, and never raises."""
        known = parent(headers.one("traceparent"), headers.one("tracestate"))
        if not self._sampled(known):
            return
        if len(self._queue) >= self._config.max_pending:
            self._count("dropped", 1)
            return
        trace_id = known.trace_id if known else _id(16)
        self._queue.append(Span(trace_id, _id(8), known, started_s, ended_s, request_id, dialect, record))
        if len(self._queue) >= self._config.batch:
            self._full.set()

    def _sampled(self, known: Parent | None) -> bool:
        return self._chance() < self._config.root_share if known is None else known.sampled

    async def run(self) -> None:
        """Until cancelled. What waits then gets one try more."""
        timeout = aiohttp.ClientTimeout(total=self._config.timeout_s)
        async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as session:
            try:
                while True:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._full.wait(), self._config.interval_s)
                    self._full.clear()
                    while self._queue:
                        await self._deliver(session, TRIES)
            finally:
                await self._last(session)

    async def _last(self, session: aiohttp.ClientSession) -> None:
        """One try for what waits, and no longer than one export may take."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._config.timeout_s):
                while self._queue:
                    await self._deliver(session, 1)
        self._count("failed", len(self._queue))
        self._queue.clear()

    async def _deliver(self, session: aiohttp.ClientSession, tries: int) -> None:
        most = min(self._config.batch, len(self._queue))
        batch = [self._queue.popleft() for _ in range(most)]
        told = "failed", most
        try:
            body = await asyncio.to_thread(encode, batch, self._resource, self._version)
            lost = await self._send(session, body, tries)
            if lost is not None:
                told = "exported", most - min(lost, most)
                self._count("rejected", min(lost, most))
        finally:  # also where the process ends in the middle
            self._count(*told)

    async def _send(self, session: aiohttp.ClientSession, body: bytes, tries: int) -> int | None:
        """How many of them the collector rejected; None where it did not take the batch."""
        why = ""
        for number in range(tries):
            if number:
                await asyncio.sleep(RETRY_S * 2 ** (number - 1))
            try:
                async with session.post(
                    self._config.endpoint, data=body, headers={"Content-Type": CONTENT_TYPE}, allow_redirects=False
                ) as answer:
                    if answer.status == 200:
                        self._complained = False
                        return rejected(await answer.content.read(MAX_ANSWER_BYTES))
                    why = f"status {answer.status}"
                    if answer.status not in AGAIN:
                        break
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                why = type(error).__name__
        self._complain(why)
        return None

    def _complain(self, why: str) -> None:
        """Once until it works again."""
        if not self._complained:
            self._complained = True
            log.warning("spans are not taken by %s: %s", self._config.endpoint, why)


def _id(size: int) -> bytes:
    """Never zeros, which mean none."""
    return random.randrange(1, 1 << 8 * size).to_bytes(size, "big")

"""A worker's connection to the control process: snapshots come, what was recorded goes.

What was recorded leaves before its answer does: a worker that is killed loses nothing but its requests in flight.
What equal decisions add is put into bytes once. A batch is kept until it is taken. While the control process is
away, or takes nothing, counts stay here, and audit records go to files of the worker's own, which the control
process adds to its own when it is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, cast

from extproc.codec.grpc_messages import GrpcFault, Messages
from extproc.codec.workers import (
    MAX_MESSAGE_BYTES,
    Applied,
    Batch,
    Hello,
    SnapshotTold,
    Taken,
    delta_bytes,
    read_delta,
    read_told,
    said,
)
from extproc.model.commands import RecordDecision, RecordPass, RecordReject
from extproc.model.values import Decision
from extproc.recorded import EMPTY, Delta, Recorded, of_decision, of_ended

log = logging.getLogger("extproc.worker")

RETRY_S = 0.1
ENDED_S = 0.01
"""How long the end of a stream waits for a decision that it can go with."""

MAX_KNOWN = 4096
"""Different decisions that are in bytes."""

SAY_EVERY_S = 1.0
"""How often the number of open streams is said where nothing else is."""

MAX_KEPT_BYTES = 8 << 20
"""Batches sent and not taken yet; beyond it nothing is sent until half of it is taken."""

TAKEN_S = 2.0
"""How long a worker that ends waits for its last batches to be taken."""


class Spill(Protocol):
    """Where audit records go meanwhile. `append` gives how many are lost; after `close` the others may be taken
    over."""

    def append(self, lines: Sequence[bytes]) -> int: ...
    def close(self) -> None: ...


class ControlLink:
    """Also the recorder of this worker's streams."""

    def __init__(self, path: Path, worker: int) -> None:
        self._path = path
        self._worker = worker
        self._spill: Spill | None = None
        self._generation = 0
        self._told: SnapshotTold | None = None
        self._news = asyncio.Event()
        self._recorded = Recorded()
        self._recorded_more = False
        self._audit: list[bytes] = []
        self._again: list[bytes] = []
        self._seconds: list[float] = []
        self._known: dict[int, tuple[Decision, bytes]] = {}
        self._ends: dict[str, bytes] = {}
        self._kept: deque[tuple[Batch, int]] = deque()  # with their bytes
        self._kept_bytes = 0
        self._full = False
        self._open_said = 0
        self._all_taken = asyncio.Event()
        self._all_taken.set()
        self._number = 0
        self._due = False
        self._waking: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._descriptor = -1  # of the transport
        self._loop = asyncio.get_running_loop()
        self.decision_seconds = self._seconds.append
        self.stream_opened = self._recorded.stream_opened

    def spill_to(self, spill: Spill) -> None:
        """To be said before the first record."""
        self._spill = spill

    def decided(self, record: RecordDecision) -> None:
        known = self._known.get(id(record.decision))
        self._again.append(self._learn(record) if known is None else known[1])
        self._audit += record.audit_lines
        self._due = True

    def _learn(self, record: RecordDecision) -> bytes:
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        data = delta_bytes(of_decision(record))
        self._known[id(record.decision)] = record.decision, data
        return data

    def passed(self, record: RecordPass) -> None:
        self._recorded.passed(record)
        self._recorded_more = True

    def rejected(self, record: RecordReject) -> None:
        self._recorded.rejected(record)
        self._recorded_more = True

    def settle(self) -> None:
        if self._due:
            self._flush()

    def stream_ended(self, outcome: str) -> None:
        self._recorded.open -= 1
        data = self._ends.get(outcome)
        if data is None:
            data = self._ends[outcome] = delta_bytes(of_ended(outcome))
        self._again.append(data)
        if not self._due:
            self._due = True
            self._waking = self._loop.call_later(ENDED_S, self.settle)

    def trace_spans(self, result: str, spans: int) -> None:
        """Said soon: these come when no stream may."""
        self._recorded.trace_spans(result, spans)
        self._recorded_more = True
        if not self._due:
            self._due = True
            self._loop.call_soon(self.settle)

    async def run(self) -> None:
        """Connect, and connect again, until cancelled."""
        while True:
            gone = self._loop.create_future()
            try:
                await self._loop.create_unix_connection(lambda gone=gone: _Peer(self, gone), str(self._path))  # type: ignore[misc]
                while not gone.done():
                    await asyncio.wait({gone}, timeout=SAY_EVERY_S)
                    self._say_open()
            except OSError:
                pass
            await asyncio.sleep(RETRY_S)

    async def snapshot(self) -> SnapshotTold:
        """The latest one that nobody has asked for yet."""
        await self._news.wait()
        self._news.clear()
        assert self._told is not None
        return self._told

    def applied(self, generation: int, error: str = "") -> None:
        """A snapshot is in force, or why it is not."""
        if not error:
            self._generation = generation
        if self._transport is not None:
            self._transport.write(said(Applied(generation, error)))

    async def close(self) -> None:
        """Wait for what was sent to be taken; what is not then goes to a file."""
        self._flush()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TAKEN_S):
                await self._all_taken.wait()
        self.lost()
        self._close_spill()

    def _close_spill(self) -> None:
        if self._spill is not None:
            self._spill.close()

    def made(self, transport: asyncio.Transport) -> None:
        self._close_spill()
        self._transport = transport
        self._descriptor = transport.get_extra_info("socket").fileno()
        transport.write(said(Hello(self._worker, os.getpid(), self._generation)))
        self._flush()

    def lost(self) -> None:
        """What was not taken is ours again."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        for batch, _ in self._kept:
            self._take_back(batch.delta, batch.again, batch.seconds)
        self._put_aside(tuple(line for batch, _ in self._kept for line in batch.audit))
        self._kept.clear()
        self._kept_bytes = 0
        self._full = False
        self._all_taken.set()

    def _take_back(self, delta: Delta, again: Sequence[bytes], seconds: Sequence[float]) -> None:
        self._recorded.merge(delta)
        for each in again:
            self._recorded.merge_again(read_delta(each))
        for took in seconds:
            self._recorded.decision_seconds(took)
        self._recorded_more = True

    def heard(self, message: SnapshotTold | Taken) -> None:
        if isinstance(message, Taken):
            self._taken(message.batch)
        else:
            self._told = message
            self._news.set()

    def _taken(self, number: int) -> None:
        while self._kept and self._kept[0][0].number <= number:
            self._kept_bytes -= self._kept.popleft()[1]
        if self._full and self._kept_bytes <= MAX_KEPT_BYTES // 2:
            self._full = False
            self._close_spill()
            self._flush()
        if not self._kept:
            self._all_taken.set()

    def _send(self, transport: asyncio.Transport, data: bytes) -> None:
        """At once, where the event loop would wait for the end of its turn."""
        sent = 0
        if not transport.get_write_buffer_size():
            with contextlib.suppress(OSError):
                sent = os.write(self._descriptor, data)
        if sent < len(data):
            transport.write(data[sent:])

    def _put_aside(self, audit: tuple[bytes, ...]) -> None:
        if not audit:
            return
        assert self._spill is not None, "records come after the first snapshot"
        if lost := self._spill.append(audit):
            self._recorded.dropped(lost)
            self._recorded_more = True

    def _say_open(self) -> None:
        """Streams may be open for long before anything of them is recorded."""
        if self._recorded.open != self._open_said:
            self._flush()

    def _flush(self) -> None:
        self._due = False
        if self._waking is not None:
            self._waking.cancel()
            self._waking = None
        audit, again, seconds = tuple(self._audit), tuple(self._again), tuple(self._seconds)
        self._audit.clear()
        self._again.clear()
        self._seconds.clear()
        if self._transport is None or self._full:
            self._take_back(EMPTY, again, seconds)
            self._put_aside(audit)
            return
        self._number += 1
        batch = Batch(self._number, self._more(), audit, again, seconds)
        data = said(batch)
        self._open_said = batch.delta.open
        self._kept.append((batch, len(data)))
        self._kept_bytes += len(data)
        self._full = self._kept_bytes > MAX_KEPT_BYTES
        self._all_taken.clear()
        self._send(self._transport, data)

    def _more(self) -> Delta:
        """What is recorded beside decisions and ends, which is seldom."""
        if not self._recorded_more:
            return Delta((), (), self._recorded.open)
        self._recorded_more = False
        return self._recorded.take()


class _Peer(asyncio.Protocol):
    """One connection to the control process."""

    def __init__(self, link: ControlLink, gone: asyncio.Future[None]) -> None:
        self._link = link
        self._gone = gone
        self._messages = Messages(MAX_MESSAGE_BYTES)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._link.made(self._transport)

    def connection_lost(self, _: Exception | None) -> None:
        self._link.lost()
        if not self._gone.done():
            self._gone.set_result(None)

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._messages.feed(data):
                self._link.heard(read_told(message))
        except (GrpcFault, ValueError) as error:
            log.error("the control process says what cannot be read: %s", error)
            if self._transport is not None:
                self._transport.abort()

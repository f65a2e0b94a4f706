"""The control process's side of its workers: told every snapshot, heard what they recorded.

Read in turns of 50 ms: a worker sends as it records, and waking up for each request would cost as much as deciding
it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from extproc.codec.grpc_messages import GrpcFault, Messages
from extproc.codec.workers import (
    MAX_MESSAGE_BYTES,
    Applied,
    Batch,
    Hello,
    SnapshotTold,
    Taken,
    read_said,
    told,
)
from extproc.recorded import Delta

log = logging.getLogger("extproc.workers")

READ_EVERY_S = 0.05
READ_BYTES = 1 << 18
TAKE_EVERY_S = 0.1


class Audit(Protocol):
    """Where records go. Every one is written or dropped at last."""

    @property
    def written(self) -> int: ...
    @property
    def dropped(self) -> int: ...
    @property
    def pending(self) -> int: ...
    def append(self, records: Sequence[bytes]) -> None: ...


class Listener(Protocol):
    """Told of what comes in. `joined` before anything else of a worker, `gone` after all of it."""

    def merge(self, worker: str, delta: Delta) -> None: ...
    def joined(self, worker: str) -> None: ...
    def gone(self, worker: str) -> None: ...


class Workers:
    """Each has a number from 1 on."""

    def __init__(self, listener: Listener, audit: Audit, snapshot: SnapshotTold) -> None:
        self._listener = listener
        self._audit = audit
        self._snapshot = snapshot
        self._here: dict[int, _Worker] = {}
        self._changed = asyncio.Event()

    @property
    def ready(self) -> int:
        """How many have a snapshot in force."""
        return sum(1 for each in self._here.values() if each.generation)

    def worker(self) -> asyncio.Protocol:
        """One connection."""
        return _Worker(self, self._audit)

    async def publish(self, snapshot: SnapshotTold, *, timeout_s: float) -> bool:
        """Tell everybody, also who comes later; whether all who are here have it in force in time."""
        self._snapshot = snapshot
        for each in self._here.values():
            each.tell(snapshot)
        return await self._when(self._all_applied, timeout_s)

    def _all_applied(self) -> bool:
        return all(each.generation == self._snapshot.generation for each in self._here.values())

    async def changed(self) -> None:
        """A worker came, went, or put a snapshot in force."""
        await self._changed.wait()

    async def _when(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                while not holds():
                    await self.changed()
        except TimeoutError:
            return False
        return True

    def _has_changed(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def take(self) -> None:
        """Tell workers what is safe, until cancelled."""
        while True:
            await asyncio.sleep(TAKE_EVERY_S)
            for each in self._here.values():
                each.take()

    def heard(self, worker: _Worker, message: Hello | Applied | Batch) -> None:
        match message:
            case Hello():
                self._joined(worker, message)
            case Applied():
                worker.generation = message.generation if not message.error else worker.generation
                if message.error:
                    log.error("worker %d keeps its snapshot: %s", worker.number, message.error)
                self._has_changed()
            case Batch():
                self._listener.merge(str(worker.number), message.delta)
                worker.keep(message)

    def _joined(self, worker: _Worker, hello: Hello) -> None:
        # The one before, if it was killed, may have left something to read.
        worker.number = hello.worker
        self._here[hello.worker] = worker
        self._listener.joined(str(hello.worker))
        worker.tell(self._snapshot)

    def left(self, worker: _Worker) -> None:
        if self._here.get(worker.number) is worker:
            del self._here[worker.number]
            self._listener.gone(str(worker.number))
            self._has_changed()


class _Worker(asyncio.Protocol):
    """One worker's connection. `number` 0 until it has said hello."""

    def __init__(self, workers: Workers, audit: Audit) -> None:
        self.number = 0
        self.generation = 0
        self._workers = workers
        self._audit = audit
        self._messages = Messages(MAX_MESSAGE_BYTES)
        self._waiting: deque[tuple[int, int]] = deque()  # a batch, and what the audit has to have done for it
        self._transport: asyncio.Transport | None = None
        self._descriptor = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._descriptor = os.dup(transport.get_extra_info("socket").fileno())

    def connection_lost(self, _: Exception | None) -> None:
        """What a worker said before it was killed is still to be read: a write to it closes the transport first."""
        self._transport = None
        with contextlib.suppress(OSError):
            while data := os.read(self._descriptor, READ_BYTES):
                self._hear(data)
        os.close(self._descriptor)
        self._workers.left(self)

    def _hear(self, data: bytes) -> None:
        try:
            for message in self._messages.feed(data):
                self._workers.heard(self, read_said(message))
        except (GrpcFault, ValueError, KeyError) as error:
            log.error("worker %d says what cannot be read: %s", self.number, error)
            self.close()

    def data_received(self, data: bytes) -> None:
        self._hear(data)
        if self.generation and self._transport is not None:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(READ_EVERY_S, self._read_on)

    def _read_on(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def tell(self, snapshot: SnapshotTold) -> None:
        if self._transport is not None:
            self._transport.write(told(snapshot))

    def keep(self, batch: Batch) -> None:
        if batch.audit:
            self._audit.append(batch.audit)
        self._waiting.append((batch.number, self._audit.written + self._audit.dropped + self._audit.pending))

    def take(self) -> None:
        done, safe = self._audit.written + self._audit.dropped, 0
        while self._waiting and self._waiting[0][1] <= done:
            safe = self._waiting.popleft()[0]
        if safe and self._transport is not None:
            self._transport.write(told(Taken(safe)))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

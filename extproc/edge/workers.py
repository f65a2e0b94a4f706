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
from collections.abc import Collection, Sequence
from typing import Protocol, cast

from extproc.codec.grpc_messages import GrpcFault, Messages
from extproc.codec.workers import (
    MAX_MESSAGE_BYTES,
    Applied,
    Batch,
    Hello,
    SnapshotTold,
    Taken,
    read_delta,
    read_said,
    told,
)
from extproc.recorded import Delta

log = logging.getLogger("extproc.workers")

READ_EVERY_S = 0.05
READ_BYTES = 1 << 18
MUCH_BYTES = 1 << 16
"""More than that at once: the worker is waiting for room, so that is read on at once."""

TAKE_EVERY_S = 0.1


class Audit(Protocol):
    """Where records go, in order. `append` gives what `written` reaches when they are on the disk; what is dropped
    has no part in it."""

    @property
    def written(self) -> int: ...
    def append(self, records: Sequence[bytes]) -> int: ...


class Listener(Protocol):
    """Told of what comes in. `joined` before anything else of a worker; `open_streams` last with 0."""

    def joined(self) -> None: ...
    def merge(self, delta: Delta) -> None: ...
    def merge_again(self, delta: Delta) -> None: ...
    def decision_seconds(self, seconds: float) -> None: ...
    def open_streams(self, worker: str, streams: int) -> None: ...


class Workers:
    """`count` of them, each with a number from 1 on. Of two with the same number the later one is meant; the
    other one, which is about to end, is heard out."""

    def __init__(self, listener: Listener, audit: Audit, snapshot: SnapshotTold, *, count: int) -> None:
        self.count = count
        self._listener = listener
        self._audit = audit
        self._snapshot = snapshot
        self._everybody: list[_Worker] = []  # in the order they came
        self._changed = asyncio.Event()

    @property
    def ready(self) -> int:
        """How many have a snapshot in force."""
        return sum(1 for each in self._here() if each.generation)

    def worker(self) -> asyncio.Protocol:
        """One connection."""
        return _Worker(self, self._audit)

    async def publish(self, snapshot: SnapshotTold, *, timeout_s: float) -> bool:
        """Tell everybody, also who comes later, and wait until each has built it or cannot. Whether all who are
        here have it in force then."""
        self._snapshot = snapshot
        for each in self._everybody:
            each.tell(snapshot)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while any(each.answered != snapshot.generation for each in self._here()):
                    await self.changed()
        return all(each.generation == snapshot.generation for each in self._here())

    def _here(self) -> Collection[_Worker]:
        """One of each number."""
        return {each.number: each for each in self._everybody}.values()

    async def changed(self) -> None:
        """A worker came, went, or put a snapshot in force."""
        await self._changed.wait()

    def _has_changed(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def take(self) -> None:
        """Tell workers what is safe, until cancelled."""
        while True:
            await asyncio.sleep(TAKE_EVERY_S)
            for each in self._everybody:
                each.take()

    def heard(self, worker: _Worker, message: Hello | Applied | Batch) -> None:
        """ValueError for what cannot be said now."""
        if isinstance(message, Hello):
            self._joined(worker, message)
        elif worker not in self._everybody:
            raise ValueError("no hello before it")
        elif isinstance(message, Applied):
            self._applied(worker, message)
        else:
            self._merge(message)
            worker.keep(message)
            self._tell_open(worker.number)

    def _merge(self, batch: Batch) -> None:
        again = [read_delta(each) for each in batch.again]
        if batch.delta.counted or batch.delta.observed:
            self._listener.merge(batch.delta)
        for each in again:
            self._listener.merge_again(each)
        for seconds in batch.seconds:
            self._listener.decision_seconds(seconds)

    def _joined(self, worker: _Worker, hello: Hello) -> None:
        if worker in self._everybody or not 1 <= hello.worker <= self.count:
            raise ValueError(f"it is worker {hello.worker} of {self.count}, or says so again")
        worker.number, worker.generation = hello.worker, hello.generation
        self._everybody.append(worker)
        self._listener.joined()
        self._tell_open(worker.number)
        worker.tell(self._snapshot)
        self._has_changed()

    def _applied(self, worker: _Worker, applied: Applied) -> None:
        worker.answered = applied.generation
        if applied.error:
            log.error("worker %d keeps generation %d: %s", worker.number, worker.generation, applied.error)
        else:
            worker.generation = applied.generation
        self._has_changed()

    def left(self, worker: _Worker) -> None:
        if worker in self._everybody:
            self._everybody.remove(worker)
            self._tell_open(worker.number)
            self._has_changed()

    def _tell_open(self, number: int) -> None:
        meant = [each.open for each in self._here() if each.number == number]
        self._listener.open_streams(str(number), sum(meant))


class _Worker(asyncio.Protocol):
    """One worker's connection. `number` 0 until it has said hello; `generation` is in force there, `answered` the
    last one it was told of here and has built, or could not; 0 = none. `open`: its streams."""

    def __init__(self, workers: Workers, audit: Audit) -> None:
        self.number = 0
        self.generation = 0
        self.answered = 0
        self.open = 0
        self._workers = workers
        self._audit = audit
        self._messages = Messages(MAX_MESSAGE_BYTES)
        self._unreadable = False
        self._waiting: deque[tuple[int, int]] = deque()  # a batch, and what the audit has to have written for it
        self._transport: asyncio.Transport | None = None
        self._descriptor = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._descriptor = os.dup(transport.get_extra_info("socket").fileno())

    def connection_lost(self, _: Exception | None) -> None:
        """What a worker said before it was killed is still to be read: a write to it closes the transport first."""
        self._transport = None
        with contextlib.suppress(OSError):
            while not self._unreadable and (data := os.read(self._descriptor, READ_BYTES)):
                self._hear(data)
        with contextlib.suppress(OSError):
            os.close(self._descriptor)
        self._workers.left(self)

    def _hear(self, data: bytes) -> None:
        try:
            for message in self._messages.feed(data):
                self._workers.heard(self, read_said(message))
        except (GrpcFault, ValueError) as error:
            log.error("worker %d says what cannot be read: %s", self.number, error)
            self._unreadable = True
            self._close()

    def data_received(self, data: bytes) -> None:
        if self._unreadable:
            return
        self._hear(data)
        if self.generation and self._transport is not None and len(data) < MUCH_BYTES:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(READ_EVERY_S, self._read_on)

    def _read_on(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def tell(self, message: SnapshotTold | Taken) -> None:
        """One that reads nothing is let go; it comes again when it can."""
        if self._transport is None:
            return
        if self._transport.get_write_buffer_size() > MAX_MESSAGE_BYTES:
            log.error("worker %d does not read", self.number)
            self._close()
        else:
            self._transport.write(told(message))

    def keep(self, batch: Batch) -> None:
        self.open = batch.delta.open
        goal = self._audit.append(batch.audit) if batch.audit else self._waiting[-1][1] if self._waiting else 0
        self._waiting.append((batch.number, goal))

    def take(self) -> None:
        written, safe = self._audit.written, 0
        while self._waiting and self._waiting[0][1] <= written:
            safe = self._waiting.popleft()[0]
        if safe:
            self.tell(Taken(safe))

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

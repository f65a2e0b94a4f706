"""Audit records as JSON lines in a file that rotates by size.

A thread of its own encodes and writes, so that a slow or full disk never holds up a request: the caller only
puts values into a bounded queue. What does not fit is dropped and counted; what could not be written stays
and is tried again. The rejected alternative, `logging.handlers.RotatingFileHandler`, encodes and writes in
the caller, and loses the record when the disk is full.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from extproc import whole_write
from extproc.errors import CannotStart
from extproc.loops.tasks import Clock, monotonic
from extproc.whole_write import FILE_MODE

logger = logging.getLogger("extproc.edge.audit_file")

LATEST = 12
"""Records kept for a look, whether the disk took them or not."""

BATCH_RECORDS = 256
"""Records per write. Encoding them holds the interpreter for about 0.2 ms: more would be felt by requests."""

LOG_EVERY_S = 60.0
LOOK_EVERY_S = 0.02


class AuditFile:
    """Appends to `path`; a full file becomes `path.1`, that one `path.2`, up to `path.{keep}`.

    The writer waits `linger_s` for more after the first record, and `retry_s` after an error.
    """

    def __init__(
        self,
        path: Path,
        *,
        max_bytes: int,
        keep: int,
        max_pending: int,
        linger_s: float = 0.05,
        retry_s: float = 1.0,
        clock: Clock = monotonic,
    ) -> None:
        if max_bytes < 1 or keep < 1 or max_pending < 1:
            raise ValueError("max_bytes, keep and max_pending are at least 1")
        self._file = _RotatingFile(path, max_bytes=max_bytes, keep=keep)
        self._max_pending = max_pending
        self._linger_s = linger_s
        self._retry_s = retry_s
        self._pending: deque[bytes] = deque()
        self._unwritten = b""
        self._latest: deque[bytes] = deque(maxlen=LATEST)
        self._in_flight = 0
        self._counting = threading.Lock()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._abandon = threading.Event()
        self._drops_logged = _Rarely(clock)
        self._failures_logged = _Rarely(clock)
        self._recoveries_logged = _Rarely(clock)
        self._complained = False
        self._queued = self._written = self._dropped = self._failures = 0
        self._thread = threading.Thread(target=self._run, name="audit-file", daemon=True)
        self._thread.start()

    @property
    def written(self) -> int:
        """Records in the file."""
        return self._written

    @property
    def dropped(self) -> int:
        """Records that are lost: no room, or not written when the file was closed."""
        return self._dropped

    @property
    def failures(self) -> int:
        """Errors while writing or rotating, each of which is tried again."""
        return self._failures

    @property
    def pending(self) -> int:
        """Records that wait to be written."""
        return len(self._pending) + self._in_flight

    def latest(self) -> tuple[bytes, ...]:
        """The newest first."""
        return tuple(reversed(self._latest.copy()))

    def append(self, records: Sequence[bytes]) -> int:
        """Queue the records, JSON lines with their breaks. They are on the disk when `written` has reached what is
        returned; those dropped have no part in it. Never waits for the disk nor raises. From any thread."""
        self._latest.extend(records)
        taken, goal = self._queue(records)
        if taken < len(records):
            self._drop(len(records) - taken, "the queue is full or closed")
        return goal

    def append_waiting(self, records: Sequence[bytes]) -> bool:
        """Blocks until these, and all that were queued before, are on the disk. Drops none: where the queue is full
        they wait for room. False where the file is closed before."""
        while True:
            taken, goal = self._queue(records)
            records = records[taken:]
            while self._written < goal:
                if self._abandon.wait(LOOK_EVERY_S):
                    return False
            if not records:
                return True
            if self._closing.is_set():
                return False

    def _queue(self, records: Sequence[bytes]) -> tuple[int, int]:
        """How many there was room for, and how many were queued since the start."""
        with self._counting:
            room = 0 if self._closing.is_set() else max(0, self._max_pending - self.pending)
            taken = min(room, len(records))
            self._pending.extend(records if taken == len(records) else records[:taken])
            self._queued += taken
            goal = self._queued
        if not self._wake.is_set():
            self._wake.set()
        return taken, goal

    def close(self, timeout_s: float = 5.0) -> None:
        """Write what is queued, for at most about `timeout_s`; the rest is dropped. Blocks the caller."""
        with self._counting:
            if self._closing.is_set():
                return
            self._closing.set()
        self._wake.set()
        self._thread.join(timeout_s)
        self._abandon.set()
        self._thread.join(0.5)
        if lost := self.pending:
            self._drop(lost, "not written when the file was closed")

    def _run(self) -> None:
        closing = False
        while not closing:
            self._wake.wait()
            self._closing.wait(self._linger_s)
            self._wake.clear()
            closing = self._closing.is_set()
            self._drain()
        self._file.close()

    def _drain(self) -> None:
        while self._take() and not self._abandon.is_set():
            try:
                self._write()
            except OSError as error:
                self._failed(error, "audit records are not written")
                self._complained = True
                self._pause()

    def _take(self) -> bool:
        """Whether there are lines to write; the next batch is taken when there are none."""
        while not self._unwritten and self._pending:
            self._in_flight = min(len(self._pending), BATCH_RECORDS)
            self._unwritten = b"".join([self._pending.popleft() for _ in range(self._in_flight)])
        return bool(self._unwritten)

    def _write(self) -> None:
        """Write as many whole lines as fit into the current file, at least one."""
        cut = self._file.fitting(self._unwritten)
        if not cut:
            try:
                self._file.rotate()
                return
            except OSError as error:
                # A file larger than it should be is better than records that are lost.
                self._failed(error, "the audit file is not rotated")
                cut = len(self._unwritten)
        self._file.append(self._unwritten[:cut])
        lines = self._unwritten.count(b"\n", 0, cut)
        self._unwritten = self._unwritten[cut:]
        self._in_flight -= lines
        self._written += lines
        if self._complained and self._recoveries_logged.due():
            self._complained = False
            logger.warning("audit records are written again, %d wait", self.pending)

    def _failed(self, error: OSError, what: str) -> None:
        self._failures += 1
        if self._failures_logged.due():
            logger.error("%s, %d wait: %s", what, self.pending, error)

    def _pause(self) -> None:
        """Between two tries: `retry_s` while running, and short, up to the end of `close`, while closing."""
        if not self._closing.wait(self._retry_s):
            return
        self._abandon.wait(min(self._retry_s, 0.1))

    def _drop(self, count: int, why: str) -> None:
        with self._counting:
            self._dropped += count
        if self._drops_logged.due():
            logger.error("audit records dropped: %d, %d since the start: %s", count, self._dropped, why)


class _RotatingFile:
    """The file descriptor and the names. Every error is an OSError, and leaves whole lines behind."""

    def __init__(self, path: Path, *, max_bytes: int, keep: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._keep = keep
        try:
            self._fd = self._open()
        except OSError as error:
            raise CannotStart(f"the audit file {path} cannot be written: {error.strerror}") from None

    def fitting(self, lines: bytes) -> int:
        """How many bytes of `lines` fit, cut after a newline; 0 = rotate first.

        An empty file takes a line of any length.
        """
        size = self._size()
        if size + len(lines) <= self._max_bytes:
            return len(lines)
        cut = lines.rfind(b"\n", 0, max(0, self._max_bytes - size)) + 1
        return cut if cut or size else lines.index(b"\n") + 1

    def append(self, lines: bytes) -> None:
        """All of `lines`, or an error and none of it."""
        size = self._size()
        whole_write.append(self._fd, lines, size=size)

    def rotate(self) -> None:
        """Move every file up by one name. The oldest goes; the next look at the file opens a new one.

        The highest name moves first, so an error in between leaves a gap and loses nothing.
        """
        for number in range(self._keep, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                self._named(number - 1).replace(self._named(number))

    def close(self) -> None:
        os.close(self._fd)

    def _named(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path

    def _size(self) -> int:
        """Size in bytes of the file that has the name: one that was moved or removed is opened anew."""
        held = os.fstat(self._fd)
        try:
            moved = not os.path.samestat(held, self._path.stat())
        except FileNotFoundError:
            moved = True
        if not moved:
            return held.st_size
        fd, self._fd = self._fd, self._open()
        os.close(fd)
        return os.fstat(self._fd).st_size

    def _open(self) -> int:
        """Opens to append; a last line cut short by a crash is ended, so that it spoils no other."""
        fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                os.write(fd, b"\n")
        except OSError:
            os.close(fd)
            raise
        return fd


class _Rarely:
    """True at the first call and then at most once in `LOG_EVERY_S`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: float | None = None

    def due(self) -> bool:
        now = self._clock()
        if self._last is not None and now - self._last < LOG_EVERY_S:
            return False
        self._last = now
        return True

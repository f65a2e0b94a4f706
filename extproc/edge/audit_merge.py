"""Audit records that workers wrote by themselves, and how they get into the audit file.

A file is locked by the worker that writes it, so one that is not locked is whole, also where its writer was killed.
A worker writes what it does not know to be safe, so a record may be in both: those at the end of the audit file are
left out. Files are small: a merge that is cut short begins again with one of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from extproc import whole_write
from extproc.whole_write import FILE_MODE

log = logging.getLogger("extproc.audit_merge")

TAIL_BYTES = 32 << 20
"""How far back a record is looked for: four times what a worker keeps."""

MAX_FILE_BYTES = 4 << 20
"""A worker's file that is longer is left for a new one."""

MAX_FILES = 64
"""Taken over at once."""

CHUNK = 4096
"""Records added before the next ones; each time the disk is waited for."""


class Merged(NamedTuple):
    """`failed`: what cannot be read, and why. `more`: there are more files than are taken over at once."""

    added: int
    known: int
    failed: tuple[str, ...] = ()
    more: bool = False


class Spill:
    """Where a worker writes, to `audit.worker-1-0.jsonl` beside `audit.jsonl` and so on: opened when there is
    something to write, closed to be taken over. `worker` is its number."""

    def __init__(self, audit: Path, worker: int) -> None:
        self._audit = audit
        self._worker = worker
        self._next = 0
        self._fd = -1
        self._failing = False

    def append(self, lines: Sequence[bytes]) -> int:
        """How many of the lines are lost."""
        try:
            if self._fd < 0:
                self._fd = self._open()
            data, size = b"".join(lines), os.fstat(self._fd).st_size
            whole_write.append(self._fd, data, size=size)
            if size + len(data) > MAX_FILE_BYTES:
                self.close()
        except OSError as error:
            self._complain("audit records are dropped: %s", error, failing=True)
            return len(lines)
        self._complain("audit records are written again, beside %s", self._audit, failing=False)
        return 0

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> int:
        """One that nobody reads, or has read and removed before it was locked."""
        while True:
            path = spill_path(self._audit, self._worker, self._next)
            self._next += 1
            try:
                fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
            except FileExistsError:
                continue
            if _locked(fd) and os.fstat(fd).st_nlink:
                return fd
            os.close(fd)

    def _complain(self, text: str, what: object, *, failing: bool) -> None:
        """When it begins and when it is over: a full disk fails for every request."""
        if failing is not self._failing:
            self._failing = failing
            log.log(logging.ERROR if failing else logging.WARNING, text, what)


def spill_path(audit: Path, worker: int, number: int) -> Path:
    return audit.with_name(f"{audit.stem}.worker-{worker}-{number}{audit.suffix}")


class _Found(NamedTuple):
    """A file that is taken over."""

    path: Path
    fd: int


def merge(audit: Path, append: Callable[[Sequence[bytes]], bool]) -> Merged:
    """Add what is in files that nobody writes to any more, and remove them.

    `append` returns when these records and all before them are in the audit file, False where they will not be:
    files then stay. OSError where the audit file cannot be read.
    """
    failed: list[str] = []
    with contextlib.ExitStack() as held:
        files = list(itertools.islice(_taken_over(audit, held, failed), MAX_FILES))
        # What workers said before is in the audit file then.
        if not files or not append(()):
            return Merged(0, 0, tuple(failed))
        added, known = _add(files, _tail(audit), append)
    return Merged(added, known, tuple(failed), len(files) == MAX_FILES)


def _add(files: Sequence[_Found], there: set[bytes], append: Callable[[Sequence[bytes]], bool]) -> tuple[int, int]:
    added = known = 0
    for path, fd in files:
        lines = _lines(fd)
        new = [line for line in lines if line not in there]
        if not all(append(new[at : at + CHUNK]) for at in range(0, len(new), CHUNK)):
            break
        added, known = added + len(new), known + len(lines) - len(new)
        os.ftruncate(fd, 0)  # also where it cannot be removed
        path.unlink(missing_ok=True)
    return added, known


def _taken_over(audit: Path, held: contextlib.ExitStack, failed: list[str]) -> Iterator[_Found]:
    """The oldest first; closed with `held`."""
    for path in _spilled(audit):
        try:
            fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            held.callback(os.close, fd)
            if _locked(fd):
                yield _Found(path, fd)
        except FileNotFoundError:
            continue
        except OSError as error:
            failed.append(f"{path.name}: {error.strerror}")


def _spilled(audit: Path) -> list[Path]:
    name = re.compile(rf"{re.escape(audit.stem)}\.worker-\d+-\d+{re.escape(audit.suffix)}")
    found = [each for each in os.scandir(audit.parent) if name.fullmatch(each.name)]
    return [Path(each.path) for each in sorted(found, key=_written_at)]


def _written_at(entry: os.DirEntry[str]) -> int:
    with contextlib.suppress(FileNotFoundError):
        return entry.stat(follow_symlinks=False).st_mtime_ns
    return 0


def _lines(fd: int) -> list[bytes]:
    """Records of a file; one that a crash cut short is left out."""
    with open(fd, "rb", closefd=False) as source:
        return [line for line in source if _is_record(line)]


def _is_record(line: bytes) -> bool:
    try:
        return line.endswith(b"\n") and isinstance(msgspec.json.decode(line), dict)
    except msgspec.DecodeError:
        return False


def _tail(audit: Path) -> set[bytes]:
    """The last lines of the audit file, and of those before it that were rotated."""
    there: set[bytes] = set()
    left = TAIL_BYTES
    for path in (audit, *_rotated(audit)):
        # A file that was just moved is not there for a moment.
        with contextlib.suppress(FileNotFoundError), path.open("rb") as source:
            size = os.fstat(source.fileno()).st_size
            source.seek(max(0, size - left))
            there.update(source)
            left -= size
        if left <= 0:
            break
    return there


def _rotated(audit: Path) -> list[Path]:
    """`audit.jsonl.1` first."""
    name = re.compile(re.escape(audit.name) + r"\.(\d+)")
    found = [(int(match[1]), each) for each in audit.parent.iterdir() if (match := name.fullmatch(each.name))]
    return [path for _, path in sorted(found)]


def _locked(fd: int) -> bool:
    """Whether nobody else has it; until it is closed."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

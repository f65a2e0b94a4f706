"""The audit file: whole lines, in order, rotated by size; a disk that fails costs nobody but the audit."""

from __future__ import annotations

import errno
import json
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from extproc.edge.audit_file import LATEST, AuditFile
from extproc.errors import CannotStart
from extproc.model.values import AuditRecord

MIB = 1 << 20


def record(number: int, request_id: str | None = None) -> bytes:
    values = AuditRecord(
        ts=float(number),
        request_id=f"request-{number}" if request_id is None else request_id,
        tenant="anonymous",
        dialect="openai_chat",
        field="temperature",
        from_=None,
        to=0.2,
        rule="tier.strict",
        reason="strict requests are deterministic",
        tier="strict",
        scenario="order",
        confidence=0.9,
        parameter_set="default@0123456789ab",
    )
    return msgspec.json.encode(values) + b"\n"


def numbers(path: Path) -> list[int]:
    """What stands in one file, which has to consist of whole lines."""
    content = path.read_bytes()
    assert content == b"" or content.endswith(b"\n")
    return [int(json.loads(line)["ts"]) for line in content.splitlines()]


def rotated(path: Path) -> list[Path]:
    """Oldest first."""
    others = sorted(path.parent.glob(f"{path.name}.*"), key=lambda p: int(p.suffix[1:]), reverse=True)
    return [*others, path]


def eventually(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.005)


class Opened:
    """Opens audit files with small times and closes them after the test."""

    def __init__(self) -> None:
        self.files: list[AuditFile] = []
        self.now = 0.0

    def __call__(self, path: Path, **options: Any) -> AuditFile:
        small = {"max_bytes": MIB, "keep": 3, "max_pending": 1000, "linger_s": 0.001, "retry_s": 0.01}
        file = AuditFile(path, clock=lambda: self.now, **{**small, **options})
        self.files.append(file)
        return file


@pytest.fixture
def opened() -> Iterator[Opened]:
    opened = Opened()
    yield opened
    for file in opened.files:
        file.close(0.1)


def test_a_line_is_the_record(tmp_path: Path, opened: Opened) -> None:
    path = tmp_path / "audit.jsonl"
    file = opened(path)
    file.append((record(1),))
    file.close()
    assert json.loads(path.read_text()) == {
        "ts": 1.0,
        "request_id": "request-1",
        "tenant": "anonymous",
        "dialect": "openai_chat",
        "field": "temperature",
        "from": None,
        "to": 0.2,
        "rule": "tier.strict",
        "reason": "strict requests are deterministic",
        "tier": "strict",
        "scenario": "order",
        "confidence": 0.9,
        "parameter_set": "default@0123456789ab",
    }


def test_records_are_written_without_closing(tmp_path: Path, opened: Opened) -> None:
    path = tmp_path / "audit.jsonl"
    file = opened(path)
    for number in range(3):
        file.append((record(number),))
        eventually(lambda expected=number + 1: file.written == expected)  # type: ignore[misc]
    assert numbers(path) == [0, 1, 2]
    assert file.pending == 0


def test_text_with_line_breaks_stays_one_line(tmp_path: Path, opened: Opened) -> None:
    path = tmp_path / "audit.jsonl"
    file = opened(path)
    file.append((record(1, "a\nb\r\u2028"), record(2)))
    file.close()
    assert path.read_bytes().count(b"\n") == 2
    assert numbers(path) == [1, 2]


def test_the_file_is_not_for_the_world(tmp_path: Path, opened: Opened) -> None:
    path = tmp_path / "audit.jsonl"
    before = os.umask(0)
    try:
        file = opened(path, max_bytes=10)
        for number in range(3):
            file.append((record(number),))
        file.close()
    finally:
        os.umask(before)
    assert {stat.S_IMODE(p.stat().st_mode) for p in rotated(path)} == {0o640}
    assert len(rotated(path)) == 3


def test_an_existing_file_is_continued(tmp_path: Path, opened: Opened) -> None:
    path = tmp_path / "audit.jsonl"
    for number in (1, 2):
        file = opened(path)
        file.append((record(number),))
        file.close()
    assert numbers(path) == [1, 2]


def test_a_line_cut_short_by_a_crash_spoils_no_other(tmp_path: Path, opened: Opened) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text('{"ts": 1.0}\n{"ts": 2.')
    file = opened(path)
    file.append((record(3),))
    file.close()
    lines = path.read_text().splitlines()
    assert lines[:2] == ['{"ts": 1.0}', '{"ts": 2.']
    assert json.loads(lines[2])["ts"] == 3


def test_100_000_records_are_rotated_in_order_and_whole(tmp_path: Path, opened: Opened) -> None:
    path = tmp_path / "audit.jsonl"
    count = 100_000
    file = opened(path, max_bytes=4 * MIB, keep=20, max_pending=count)
    for start in range(0, count, 4):
        file.append([record(number) for number in range(start, start + 4)])
    file.close(30)
    assert (file.written, file.dropped, file.failures) == (count, 0, 0)
    files = rotated(path)
    assert len(files) > 5
    assert [number for p in files for number in numbers(p)] == list(range(count))
    sizes = [p.stat().st_size for p in files]
    assert max(sizes) <= 4 * MIB
    assert min(sizes[:-1]) > 4 * MIB - 1000  # full, but for less than a line


def test_only_so_many_files_are_kept(tmp_path: Path, opened: Opened) -> None:
    path = tmp_path / "audit.jsonl"
    line = len(json.dumps({})) + 400
    file = opened(path, max_bytes=10 * line, keep=2)
    file.append([record(number) for number in range(500)])
    file.close()
    files = rotated(path)
    assert [p.name for p in files] == ["audit.jsonl.2", "audit.jsonl.1", "audit.jsonl"]
    kept = [number for p in files for number in numbers(p)]
    assert kept == list(range(kept[0], 500))
    assert kept[0] > 400


def test_a_line_longer_than_a_file_gets_one_of_its_own(tmp_path: Path, opened: Opened) -> None:
    path = tmp_path / "audit.jsonl"
    file = opened(path, max_bytes=50, keep=5)
    file.append([record(number) for number in range(4)])
    file.close()
    assert [numbers(p) for p in rotated(path)] == [[0], [1], [2], [3]]


def test_what_does_not_fit_is_dropped_and_told_once_a_minute(
    tmp_path: Path, opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    file = opened(tmp_path / "audit.jsonl", max_pending=10, linger_s=60)
    file.append([record(number) for number in range(15)])
    assert (file.pending, file.dropped) == (10, 5)
    file.append((record(15),))
    file.append((record(16),))
    assert file.dropped == 7
    assert len(caplog.records) == 1
    opened.now = 61.0
    file.append((record(17),))
    assert len(caplog.records) == 2
    assert "dropped: 1, 8 since the start" in caplog.records[1].getMessage()
    file.close()
    assert numbers(tmp_path / "audit.jsonl") == list(range(10))


def test_after_close_records_are_dropped_and_counted(tmp_path: Path, opened: Opened) -> None:
    file = opened(tmp_path / "audit.jsonl")
    file.close()
    file.close()
    file.append((record(1),))
    assert (file.written, file.dropped, file.pending) == (0, 1, 0)


def test_append_does_not_wait_for_the_disk(tmp_path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    write, begun, go = os.write, threading.Event(), threading.Event()

    def slow(fd: int, data: bytes) -> int:
        begun.set()
        go.wait(5)
        return write(fd, data)

    monkeypatch.setattr(os, "write", slow)
    file = opened(tmp_path / "audit.jsonl")
    file.append((record(0),))
    assert begun.wait(5)
    file.append((record(1),))
    assert file.written == 0
    go.set()
    file.close()
    assert file.written == 2


@pytest.mark.parametrize("name", ["missing/audit.jsonl", ".", "file/audit.jsonl"])
def test_an_unwritable_path_is_one_clear_line(tmp_path: Path, opened: Opened, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotStart) as caught:
        opened(tmp_path / name)
    assert str(caught.value).startswith(f"the audit file {tmp_path / name} cannot be written: ")
    assert "\n" not in str(caught.value)


def test_an_unwritable_directory_is_one_clear_line(tmp_path: Path, opened: Opened, not_root: None) -> None:
    with pytest.raises(CannotStart, match="Permission denied"):
        opened(Path("/audit.jsonl"))


def test_no_permission_is_one_clear_line(tmp_path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(CannotStart, match=r"audit\.jsonl cannot be written: Permission denied"):
        opened(tmp_path / "audit.jsonl")


def test_a_full_disk_is_counted_and_closing_gives_up_in_time(
    opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    file = opened(Path("/dev/full"))
    file.append([record(number) for number in range(10)])
    eventually(lambda: file.failures >= 3)
    assert (file.written, file.dropped, file.pending) == (0, 0, 10)
    assert [r.getMessage() for r in caplog.records] == [
        "audit records are not written, 10 wait: [Errno 28] No space left on device"
    ]
    begin = time.monotonic()
    file.close(0.3)
    assert time.monotonic() - begin < 1.5
    assert (file.written, file.dropped) == (0, 10)
    failures = file.failures
    time.sleep(0.05)
    assert file.failures == failures  # nobody goes on trying


class Disk:
    """`os.write` that fails, or writes a part and then fails, while `full`."""

    def __init__(self, part: int) -> None:
        self.full = False
        self._part = part
        self._partly_written = False
        self._write = os.write

    def write(self, fd: int, data: bytes) -> int:
        if not self.full:
            return self._write(fd, data)
        if self._part and not self._partly_written:
            self._partly_written = True
            return self._write(fd, memoryview(data)[: self._part])
        self._partly_written = False
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("part", [0, 1, 500])
def test_after_a_full_disk_nothing_is_lost_or_doubled(
    tmp_path: Path,
    opened: Opened,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    part: int,
) -> None:
    path = tmp_path / "audit.jsonl"
    disk = Disk(part)
    monkeypatch.setattr(os, "write", disk.write)
    file = opened(path)
    file.append([record(number) for number in range(5)])
    eventually(lambda: file.written == 5)
    disk.full = True
    file.append([record(number) for number in range(5, 300)])
    eventually(lambda: file.failures >= 3)
    assert numbers(path) == list(range(5))  # no half line, not even while the disk is full
    assert file.pending == 295
    disk.full = False
    eventually(lambda: file.written == 300)
    assert file.dropped == 0
    assert numbers(path) == list(range(300))
    assert [r.getMessage().partition(",")[0] for r in caplog.records] == [
        "audit records are not written",
        "audit records are written again",
    ]


def test_a_disk_that_recovers_while_closing_gets_everything(
    tmp_path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.jsonl"
    disk = Disk(0)
    disk.full = True
    monkeypatch.setattr(os, "write", disk.write)
    file = opened(path, retry_s=60)
    file.append((record(1),))
    eventually(lambda: file.failures == 1)
    disk.full = False
    file.close(5)
    assert numbers(path) == [1]
    assert file.dropped == 0


def test_a_rotation_that_fails_loses_nothing(
    tmp_path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.jsonl"

    def refuse(*_: object) -> Path:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "replace", refuse)
    file = opened(path, max_bytes=1000)
    file.append([record(number) for number in range(20)])
    file.close()
    assert file.failures > 0
    assert numbers(path) == list(range(20))


@pytest.mark.parametrize("move", [Path.unlink, lambda path: path.rename(path.with_name("moved"))])
def test_a_file_moved_by_someone_else_is_opened_anew(
    tmp_path: Path, opened: Opened, move: Callable[[Path], object]
) -> None:
    path = tmp_path / "audit.jsonl"
    file = opened(path)
    file.append((record(1),))
    eventually(lambda: file.written == 1)
    move(path)
    file.append((record(2),))
    file.close()
    assert numbers(path) == [2]


@pytest.mark.parametrize("wrong", [{"max_bytes": 0}, {"keep": 0}, {"max_pending": 0}])
def test_bounds_are_positive(tmp_path: Path, opened: Opened, wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        opened(tmp_path / "audit.jsonl", **wrong)


# ── who wants to know when it is on the disk ─────────────────────────────────────────────────────


def test_append_says_what_written_reaches(tmp_path: Path, opened: Opened) -> None:
    """Whatever was dropped before, or is dropped now."""
    file = opened(tmp_path / "audit.jsonl", max_pending=10, linger_s=60)
    assert file.append([record(number) for number in range(4)]) == 4
    assert file.append(()) == 4
    assert file.append([record(number) for number in range(4, 20)]) == 10
    assert file.append((record(20),)) == 10
    assert (file.written, file.dropped) == (0, 11)
    file.close()
    assert file.written == 10
    assert file.append((record(21),)) == 10


class Waiting(threading.Thread):
    """`append_waiting` in a thread; `result` None while it waits."""

    def __init__(self, file: AuditFile, records: list[bytes]) -> None:
        super().__init__(daemon=True)
        self._file = file
        self._records = records
        self.result: bool | None = None
        self.start()

    def run(self) -> None:
        self.result = self._file.append_waiting(self._records)


def test_one_that_waits_drops_nothing_where_the_queue_is_full(
    tmp_path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(0)
    disk.full = True
    monkeypatch.setattr(os, "write", disk.write)
    file = opened(tmp_path / "audit.jsonl", max_pending=7)
    file.append([record(number) for number in range(5)])
    waiting = Waiting(file, [record(number) for number in range(5, 40)])
    eventually(lambda: file.pending == 7)
    assert waiting.result is None
    disk.full = False
    waiting.join(10)
    assert waiting.result is True
    assert numbers(tmp_path / "audit.jsonl") == list(range(40))
    assert file.dropped == 0


def test_one_that_waits_for_what_others_queued(
    tmp_path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(0)
    disk.full = True
    monkeypatch.setattr(os, "write", disk.write)
    file = opened(tmp_path / "audit.jsonl")
    file.append((record(0),))
    waiting = Waiting(file, [])
    eventually(lambda: file.failures >= 2)
    assert waiting.result is None
    disk.full = False
    waiting.join(10)
    assert waiting.result is True
    assert file.written == 1


@pytest.mark.parametrize("full", [True, False])
def test_closed_while_one_waits(opened: Opened, full: bool) -> None:
    file = opened(Path("/dev/full"), max_pending=5 if full else 100)
    waiting = Waiting(file, [record(number) for number in range(20)])
    eventually(lambda: file.pending > 0)
    file.close(0.05)
    waiting.join(10)
    assert waiting.result is False


def test_closed_before_one_waits(tmp_path: Path, opened: Opened) -> None:
    file = opened(tmp_path / "audit.jsonl")
    file.append((record(0),))
    file.close()
    assert file.append_waiting(()) is True
    assert file.append_waiting((record(1),)) is False
    assert file.dropped == 0


def test_the_latest_are_few_and_the_newest_first(tmp_path: Path, opened: Opened) -> None:
    file = opened(tmp_path / "audit.jsonl")
    assert file.latest() == ()
    file.append([record(number) for number in range(LATEST + 5)])
    assert file.latest() == tuple(record(number) for number in range(LATEST + 4, 4, -1))

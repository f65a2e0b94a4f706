"""What workers wrote by themselves is in the audit file in the end, exactly once, whatever was killed meanwhile."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.edge import audit_merge
from extproc.edge.audit_file import AuditFile
from extproc.edge.audit_merge import Merged, Spill, merge, spill_path

Append = Callable[[Sequence[bytes]], bool]


def line(number: int | str) -> bytes:
    return json.dumps({"request_id": number}).encode() + b"\n"


def lines(*numbers: int) -> list[bytes]:
    return list(map(line, numbers))


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def into(path: Path) -> Append:
    """Writes at once."""

    def append(records: Sequence[bytes]) -> bool:
        with path.open("ab") as sink:
            sink.writelines(records)
        return True

    return append


def written(path: Path) -> list[int]:
    return [json.loads(each)["request_id"] for each in path.read_bytes().splitlines()]


def spilled(audit: Path) -> list[str]:
    return sorted(each.name for each in audit.parent.iterdir() if ".worker-" in each.name)


def spill(audit: Path, worker: int, *numbers: int) -> Path:
    """By a worker that has closed it."""
    sink = Spill(audit, worker)
    assert sink.append(lines(*numbers)) == 0
    sink.close()
    return audit.parent / spilled(audit)[-1]


# ── a worker writes ──────────────────────────────────────────────────────────────────────────────


def test_where_a_worker_writes(audit: Path) -> None:
    sink = Spill(audit, 3)
    assert spilled(audit) == []
    sink.append(lines(1))
    sink.append(lines(2, 3))
    assert spilled(audit) == ["audit.worker-3-0.jsonl"]
    assert written(spill_path(audit, 3, 0)) == [1, 2, 3]
    assert stat.S_IMODE(spill_path(audit, 3, 0).stat().st_mode) & 0o137 == 0
    sink.close()
    sink.close()
    sink.append(lines(4))
    assert written(spill_path(audit, 3, 1)) == [4]


def test_what_a_killed_one_left_is_not_added_to(audit: Path) -> None:
    spill_path(audit, 1, 0).write_bytes(line(1) + line(2)[:5])
    Spill(audit, 1).append(lines(3))
    merge(audit, into(audit))
    assert written(audit) == [1]
    assert written(spill_path(audit, 1, 1)) == [3]


def test_a_long_file_is_followed_by_another_one(audit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_merge, "MAX_FILE_BYTES", 50)
    sink = Spill(audit, 1)
    for number in range(10):
        sink.append(lines(number))
    assert len(spilled(audit)) == 4
    assert merge(audit, into(audit)).added == 9
    sink.close()
    merge(audit, into(audit))
    assert written(audit) == list(range(10))


def test_what_cannot_be_written_is_said_once_and_counted(
    audit: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = Spill(audit.parent / "none" / "audit.jsonl", 1)
    with caplog.at_level(logging.WARNING):
        assert [sink.append(lines(1, 2)) for _ in range(5)] == [2] * 5
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        audit.with_name("none").mkdir()
        assert sink.append(lines(1, 2)) == 0
        assert sink.append(lines(3)) == 0
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


def test_a_full_disk_leaves_whole_lines(audit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, room = os.write, [25]

    def short(fd: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        done = write(fd, data[: room[0]])
        room[0] -= done
        return done

    sink = Spill(audit, 1)
    monkeypatch.setattr(os, "write", short)
    assert sink.append(lines(1)) == 0
    assert sink.append(lines(2, 3)) == 2
    room[0] = 30
    assert sink.append(lines(4)) == 0
    assert written(spill_path(audit, 1, 0)) == [1, 4]


def test_a_file_taken_over_before_it_is_locked_is_not_written_to(
    audit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two steps of opening one, a merge may find it empty, and remove it."""
    flock, early = fcntl.flock, [True]

    def late(fd: int, how: int) -> None:
        if early[0]:
            early[0] = False
            merge(audit, into(audit))
        flock(fd, how)

    monkeypatch.setattr(fcntl, "flock", late)
    sink = Spill(audit, 1)
    sink.append(lines(1))
    assert spilled(audit) == ["audit.worker-1-1.jsonl"]
    sink.close()
    merge(audit, into(audit))
    assert written(audit) == [1]


# ── and its records come into the audit file ─────────────────────────────────────────────────────


def test_all_that_was_left_is_added_and_removed(audit: Path) -> None:
    spill(audit, 1, 1, 2)
    spill(audit, 2, 3)
    spill(audit, 77, 4)  # of a number that no longer exists
    assert merge(audit, into(audit)) == Merged(4, 0)
    assert sorted(written(audit)) == [1, 2, 3, 4]
    assert spilled(audit) == []
    assert merge(audit, into(audit)) == Merged(0, 0)


def test_the_oldest_comes_first(audit: Path) -> None:
    for worker, at in ((1, 300), (2, 100), (10, 200)):
        os.utime(spill(audit, worker, worker), (at, at))
        os.utime(spill_path(audit, worker, 0), (at, at))
    merge(audit, into(audit))
    assert written(audit) == [2, 10, 1]


def test_one_that_is_written_to_is_left_alone(audit: Path) -> None:
    sink = Spill(audit, 1)
    sink.append(lines(1))
    assert merge(audit, into(audit)) == Merged(0, 0)
    sink.append(lines(2))
    sink.close()
    assert merge(audit, into(audit)) == Merged(2, 0)


def test_nothing_left_nothing_done(audit: Path) -> None:
    def append(_: Sequence[bytes]) -> bool:
        raise AssertionError

    assert merge(audit, append) == Merged(0, 0)


def test_neighbours_are_none_of_ours(audit: Path) -> None:
    names = [
        "audit.old.jsonl",
        "audit.1.jsonl",
        "audit.worker-x-0.jsonl",
        "xaudit.worker-1-0.jsonl",
        "audit.jsonl.1",
    ]
    names += ["auditXworker-1-0.jsonl", "audit.worker-1-0.jsonl.bak", "audit.worker-1-0Xjsonl"]
    for name in names:
        audit.with_name(name).write_bytes(line(1))
    assert merge(audit, into(audit)) == Merged(0, 0)
    assert {each.name for each in audit.parent.iterdir()} == set(names)


@pytest.mark.parametrize("name", ["audit", "a.b.jsonl", "audit [1]*.jsonl", "протокол.jsonl"])
def test_any_name_of_an_audit_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    spill(path, 1, 1)
    merge(path, into(path))
    assert written(path) == [1]
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_records_that_are_there_are_left_out(audit: Path) -> None:
    audit.write_bytes(b"".join(lines(*range(10))))
    spill(audit, 1, 8, 9, 10)
    assert merge(audit, into(audit)) == Merged(1, 2)
    assert written(audit) == list(range(11))


@pytest.mark.parametrize("rotations", [1, 2, 12])
def test_also_in_files_that_were_rotated(audit: Path, rotations: int) -> None:
    for number in range(rotations):
        audit.with_name(f"audit.jsonl.{rotations - number}").write_bytes(line(number))
    audit.write_bytes(line(rotations))
    spill(audit, 1, *range(rotations + 2))
    assert merge(audit, into(audit)) == Merged(1, rotations + 1)
    assert written(audit) == [rotations, rotations + 1]


def test_also_while_the_audit_file_has_no_name(audit: Path) -> None:
    """It was rotated just now."""
    audit.with_name("audit.jsonl.1").write_bytes(line(1))
    spill(audit, 1, 1, 2)
    assert merge(audit, into(audit)) == Merged(1, 1)


def test_not_further_back_than_a_worker_keeps(audit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_merge, "TAIL_BYTES", 3 * len(line(1)) + 5)
    audit.with_name("audit.jsonl.1").write_bytes(b"".join(lines(0, 1, 2, 3)))
    audit.write_bytes(line(4))
    spill(audit, 1, 2, 3, 4)
    assert merge(audit, into(audit)).known == 3
    spill(audit, 1, 0)
    assert merge(audit, into(audit)).known == 0


def test_records_that_wait_to_be_written_are_known_too(audit: Path) -> None:
    """A worker that was asked to end wrote by itself what the disk was too slow for."""
    waiting = lines(1, 2)

    def append(records: Sequence[bytes]) -> bool:
        into(audit)([*waiting, *records])
        waiting.clear()
        return True

    spill(audit, 1, 2, 3)
    assert merge(audit, append) == Merged(1, 1)
    assert written(audit) == [1, 2, 3]


@pytest.mark.parametrize(
    "half", [line(3)[:-1], line(3)[:7], b"\n", b"12\n", b'{"request_id": \n', b"\xff\xfe\n", b"\0" * 4096, b""]
)
def test_what_is_no_record_is_left_out(audit: Path, half: bytes) -> None:
    spill_path(audit, 1, 0).write_bytes(line(1) + line(2) + half)
    assert merge(audit, into(audit)) == Merged(2, 0)
    assert written(audit) == [1, 2]


def test_a_half_line_at_the_end_of_the_audit_file_is_no_record(audit: Path) -> None:
    audit.write_bytes(line(1) + line(2)[:-3] + b"\n")
    spill(audit, 1, 1, 2)
    assert merge(audit, into(audit)) == Merged(1, 1)


def _unreadable(path: Path, kind: str) -> None:
    match kind:
        case "directory":
            path.mkdir()
        case "link":
            (path.parent / "precious").write_bytes(line(9))
            path.symlink_to(path.parent / "precious")
        case _:
            path.write_bytes(line(9))
            path.chmod(0)


@pytest.mark.parametrize("kind", ["directory", "link", "forbidden"])
def test_one_that_cannot_be_read_holds_up_no_other(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    tmp_path.chmod(0o777)
    for each in (tmp_path, *tmp_path.parents[:-2]):
        each.chmod(each.stat().st_mode | 0o111)
    audit = tmp_path / "audit.jsonl"
    _unreadable(spill_path(audit, 1, 0), kind)
    request.getfixturevalue("not_root")
    spill(audit, 2, 1)
    found = merge(audit, into(audit))
    assert (found.added, len(found.failed)) == (1, 1)
    assert found.failed[0].startswith("audit.worker-1-0.jsonl: ")
    assert written(audit) == [1]
    assert spilled(audit) == ["audit.worker-1-0.jsonl"]


def test_an_audit_file_that_cannot_be_read_leaves_all_as_it_is(audit: Path) -> None:
    audit.mkdir()
    spill(audit, 1, 1)
    with pytest.raises(OSError, match="Is a directory"):
        merge(audit, lambda _: True)
    assert spilled(audit) == ["audit.worker-1-0.jsonl"]


def test_so_many_at_once_and_the_rest_later(audit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_merge, "MAX_FILES", 2)
    for number in range(5):
        spill(audit, number, number)
    found = []
    while not found or found[-1].more:
        found.append(merge(audit, into(audit)))
    assert [each.added for each in found] == [2, 2, 1]
    assert sorted(written(audit)) == list(range(5))


def test_no_descriptor_is_left_open(audit: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(5):
        spill(audit, number, number)
        merge(audit, into(audit))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


# ── and nothing is lost where that is cut short ──────────────────────────────────────────────────


class Killed(BaseException):
    """Nothing after it happens."""


def _cut_short(audit: Path, calls: int, error: bool) -> Append:
    """After so many calls it is closed, or all is over; the last call may have written or not."""
    left, append = [calls], into(audit)

    def cut(records: Sequence[bytes]) -> bool:
        left[0] -= 1
        if left[0] < 0:
            append(records[: len(records) // 2])
            if error:
                raise Killed
            return False
        return append(records)

    return cut


@given(st.integers(0, 6), st.booleans(), st.lists(st.integers(1, 600), min_size=1, max_size=3), st.booleans())
def test_a_merge_that_is_cut_short_is_done_later(calls: int, killed: bool, sizes: list[int], twice: bool) -> None:
    with tempfile.TemporaryDirectory() as directory, mock.patch.object(audit_merge, "CHUNK", 200):
        audit, at = Path(directory) / "audit.jsonl", 0
        for worker, size in enumerate(sizes):
            spill(audit, worker, *range(at, at + size))
            at += size
        for _ in range(1 + twice):
            with contextlib.suppress(Killed):
                merge(audit, _cut_short(audit, calls, killed))
        merge(audit, into(audit))
        assert sorted(written(audit)) == list(range(at))
        assert spilled(audit) == []


def test_killed_between_the_last_record_and_the_removal(audit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spill(audit, 1, 1, 2)

    def unlink(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Path, "unlink", unlink)
        merge(audit, into(audit))
    merge(audit, into(audit))
    assert written(audit) == [1, 2]
    assert spilled(audit) == []


# ── with the real audit file ─────────────────────────────────────────────────────────────────────


@pytest.fixture
def small(audit: Path) -> Iterator[AuditFile]:
    made = AuditFile(audit, max_bytes=1 << 20, keep=2, max_pending=10, linger_s=0)
    yield made
    made.close()


def test_more_records_than_the_queue_holds(audit: Path, small: AuditFile) -> None:
    spill(audit, 1, *range(100))
    assert merge(audit, small.append_waiting).added == 100
    assert written(audit) == list(range(100))
    assert small.dropped == 0


def test_an_audit_file_that_is_closed_meanwhile(audit: Path, small: AuditFile) -> None:
    spill(audit, 1, 1)
    small.close()
    assert merge(audit, small.append_waiting) == Merged(0, 0)
    assert spilled(audit) == ["audit.worker-1-0.jsonl"]
    assert small.dropped == 0

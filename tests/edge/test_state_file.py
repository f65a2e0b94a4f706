"""A file that is replaced as a whole, or not at all."""

from __future__ import annotations

import logging
import stat
from pathlib import Path

import pytest

from extproc.edge.state_file import StateFile


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "x.json")
    assert file.load() is None
    assert file.save(b"one") and file.save(b"two")
    assert StateFile(tmp_path / "x.json").load() == b"two"
    assert [each.name for each in tmp_path.iterdir()] == ["x.json"]
    assert stat.S_IMODE((tmp_path / "x.json").stat().st_mode) & 0o007 == 0


def test_what_cannot_be_written_leaves_the_old_one_and_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = StateFile(tmp_path / "x.json")
    file.save(b"old")
    (tmp_path / "x.json.new").mkdir()  # as good as a full disk: nothing can be written there
    with caplog.at_level(logging.INFO):
        assert not file.save(b"new") and not file.save(b"newer")
    assert file.load() == b"old" and file.failing and file.failures == 2
    assert len(caplog.records) == 1
    (tmp_path / "x.json.new").rmdir()
    with caplog.at_level(logging.INFO):
        assert file.save(b"newest")
    assert file.load() == b"newest" and not file.failing
    assert "written again" in caplog.text


def test_a_full_disk(tmp_path: Path) -> None:
    """The device that is always full takes the bytes and then says so."""
    (tmp_path / "x.json.new").symlink_to("/dev/full")
    file = StateFile(tmp_path / "x.json")
    assert not file.save(b"data")
    assert file.load() is None


def test_what_cannot_be_read_is_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert StateFile(tmp_path).load() is None
    assert "not readable" in caplog.text

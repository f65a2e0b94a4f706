"""Changes of a configuration file, as editors and Kubernetes make them, on a real file system."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from watchfiles import awatch

from extproc.edge import config_file
from extproc.edge.config_file import watch

NEVER_POLLS_S = 60.0
NOTICED_S = 5.0


class Watched:
    """The contents seen at each call."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.calls = 0
        self.seen: list[str] = []
        self.stop = asyncio.Event()

    def look(self) -> None:
        self.calls += 1
        with contextlib.suppress(OSError):
            self.seen.append(self.path.read_text())

    async def sees(self, content: str) -> None:
        async with asyncio.timeout(NOTICED_S):
            while content not in self.seen[-1:]:
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def watching(path: Path, poll_s: float = NEVER_POLLS_S) -> AsyncIterator[Watched]:
    watched = Watched(path)
    task = asyncio.create_task(watch(path, watched.stop, watched.look, poll_s=poll_s))
    if poll_s == NEVER_POLLS_S:
        await armed(watched)
    yield watched
    watched.stop.set()
    await asyncio.wait_for(task, 2)


async def armed(watched: Watched) -> None:
    """Until the watch is there: a neighbour is touched until a call comes."""
    neighbour = watched.path.with_name("neighbour")
    async with asyncio.timeout(NOTICED_S):
        while not watched.calls:
            neighbour.touch()
            await asyncio.sleep(0.05)
    watched.seen.clear()


def in_place(path: Path, content: str) -> None:
    path.write_text(content)


def rename_save(path: Path, content: str) -> None:
    temporary = path.with_name(f".{path.name}.swp~")
    temporary.write_text(content)
    temporary.replace(path)


def backup_save(path: Path, content: str) -> None:
    path.rename(path.with_name(f"{path.name}~"))
    path.write_text(content)


@pytest.mark.parametrize("save", [in_place, rename_save, backup_save])
async def test_every_save_is_noticed(tmp_path: Path, save: Callable[[Path, str], None]) -> None:
    path = tmp_path / "extproc.yaml"
    path.write_text("0")
    async with watching(path) as watched:
        for content in ("1", "2", "3"):  # a watch on the inode would see the first one only
            save(path, content)
            await watched.sees(content)


async def test_no_name_is_ignored(tmp_path: Path) -> None:
    """File watchers made for source trees leave out directories and files with such names."""
    path = tmp_path / "node_modules" / ".extproc.yaml.swp"
    path.parent.mkdir()
    async with watching(path) as watched:
        path.write_text("1")
        await watched.sees("1")


def publish_config_map(volume: Path, version: int) -> None:
    """As the kubelet does: a new directory, then `..data` swapped by a rename, then the old one removed."""
    data = volume / "..data"
    old = data.resolve() if data.is_symlink() else None
    new = volume / f"..2026_01_0{version}_00_00_00.{version}"
    new.mkdir()
    (new / "extproc.yaml").write_text(str(version))
    temporary = volume / "..data_tmp"
    temporary.symlink_to(new.name)
    temporary.replace(data)
    if old:
        shutil.rmtree(old)


async def test_a_swapped_config_map_is_noticed(tmp_path: Path) -> None:
    publish_config_map(tmp_path, 1)
    path = tmp_path / "extproc.yaml"
    path.symlink_to("..data/extproc.yaml")
    async with watching(path) as watched:
        for version in (2, 3, 4):
            publish_config_map(tmp_path, version)
            await watched.sees(str(version))


async def test_a_burst_is_one_or_few_calls(tmp_path: Path) -> None:
    path = tmp_path / "extproc.yaml"
    path.write_text("0")
    async with watching(path) as watched:
        await asyncio.sleep(0.3)  # the events of arming
        before = watched.calls
        for number in range(100):
            path.write_text(str(number))
        await watched.sees("99")
        assert watched.calls - before <= 3


async def test_a_file_that_comes_later_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "extproc.yaml"
    async with watching(path) as watched:
        path.write_text("late")
        await watched.sees("late")


async def test_it_is_called_regularly_without_any_event(tmp_path: Path) -> None:
    path = tmp_path / "extproc.yaml"
    path.write_text("0")
    async with watching(path, poll_s=0.1) as watched:
        async with asyncio.timeout(NOTICED_S):
            while watched.calls < 3:
                await asyncio.sleep(0.01)


async def test_a_link_into_another_directory_is_covered_by_the_regular_look(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere" / "real.yaml"
    target.parent.mkdir()
    target.write_text("0")
    path = tmp_path / "here" / "extproc.yaml"
    path.parent.mkdir()
    path.symlink_to(target)
    async with watching(path, poll_s=0.1) as watched:
        target.write_text("1")
        await watched.sees("1")


async def test_a_directory_made_anew_is_watched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    armed_for: list[Path] = []

    def counting(directory: Path, **options: Any) -> Any:
        armed_for.append(directory)
        return awatch(directory, **options)

    monkeypatch.setattr("extproc.edge.config_file.awatch", counting)
    path = tmp_path / "conf" / "extproc.yaml"
    path.parent.mkdir()
    path.write_text("1")
    async with watching(path, poll_s=0.1) as watched:
        await watched.sees("1")
        shutil.rmtree(path.parent)
        path.parent.mkdir()
        path.write_text("2")
        await watched.sees("2")
        async with asyncio.timeout(NOTICED_S):
            while len(armed_for) < 2:  # without a second watch only the regular look would be left
                await asyncio.sleep(0.01)


async def test_a_missing_directory_is_complained_about_once_and_polled(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "conf" / "extproc.yaml"
    async with watching(path, poll_s=0.05) as watched:
        async with asyncio.timeout(NOTICED_S):
            while watched.calls < 3:
                await asyncio.sleep(0.01)
        path.parent.mkdir()
        path.write_text("1")
        await watched.sees("1")
    complaints = [r.getMessage() for r in caplog.records if r.name == config_file.logger.name]
    assert len(complaints) == 1
    assert "cannot be watched" in complaints[0]


async def test_cancelling_is_quick_and_leaves_the_callers_event_alone(tmp_path: Path) -> None:
    path = tmp_path / "extproc.yaml"
    watched = Watched(path)
    task = asyncio.create_task(watch(path, watched.stop, watched.look, poll_s=NEVER_POLLS_S))
    await armed(watched)
    begin = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - begin < 1
    assert not watched.stop.is_set()


class Slow:
    """A look that lasts until it is let go, and how many ran at once."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go = threading.Event()
        self.running = 0
        self.most = 0
        self.done = 0

    def look(self) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        self.begun.set()
        self.go.wait(NOTICED_S)
        self.running -= 1
        self.done += 1


SlowWatch = tuple[Slow, asyncio.Task[None], asyncio.Event]


@pytest.fixture
async def slow(tmp_path: Path) -> AsyncIterator[SlowWatch]:
    """A watch whose first look has begun."""
    slow, stop = Slow(), asyncio.Event()
    task = asyncio.create_task(watch(tmp_path / "extproc.yaml", stop, slow.look, poll_s=0.05))
    async with asyncio.timeout(NOTICED_S):
        while not slow.begun.is_set():
            await asyncio.sleep(0.01)
    yield slow, task, stop
    slow.go.set()
    stop.set()
    await asyncio.wait([task], timeout=2)


async def test_the_event_loop_turns_during_a_slow_look(slow: SlowWatch, tmp_path: Path) -> None:
    look, _, _ = slow
    begin = time.monotonic()
    for number in range(20):
        (tmp_path / "extproc.yaml").write_text(str(number))
        await asyncio.sleep(0.01)
    assert time.monotonic() - begin < 2
    assert look.done == 0
    look.go.set()
    async with asyncio.timeout(NOTICED_S):
        while look.done < 2:
            await asyncio.sleep(0.01)
    assert look.most == 1


async def test_a_stop_during_a_slow_look_waits_for_it_only(slow: SlowWatch) -> None:
    look, task, stop = slow
    stop.set()
    await asyncio.sleep(0.1)
    assert not task.done()
    look.go.set()
    await asyncio.wait_for(task, 2)
    assert look.done == 1


async def test_cancelling_during_a_slow_look_does_not_wait(slow: SlowWatch) -> None:
    look, task, _ = slow
    begin = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - begin < 1
    assert look.done == 0

"""Reloading: content decides, a bad one changes nothing, every failure is told once."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from pathlib import Path
from typing import Any, cast

import pytest

from extproc.app import _Reloads
from extproc.errors import ConfigError, Problem
from extproc.guarding import Keeper
from extproc.loops.board import Board
from extproc.loops.reload import Reloader
from extproc.settings import Settings, load
from extproc.snapshot import Limits, Snapshot


class World:
    """A configuration file whose words are either good or named problems, and who hears of it."""

    def __init__(self, path: Path, content: bytes) -> None:
        self.path = path
        self.path.write_bytes(content)
        self.board = Board(self.snapshot(content, 1))
        self.heard: list[tuple[str, object]] = []
        self.built: list[bytes] = []
        self.reloader = Reloader(
            read=path.read_bytes, build=self.build, board=self.board, observer=self, content=content
        )

    def build(self, content: bytes, generation: int) -> Snapshot:
        self.built.append(content)
        if content == b"bug":
            raise KeyError("x")
        if content == b"secret missing":
            raise FileNotFoundError(2, "No such file or directory", "/run/token")
        problems = tuple(
            Problem(word, "is not\nallowed") for word in content.decode().split() if word.startswith("bad")
        )
        if problems:
            raise ConfigError(problems)
        return self.snapshot(content, generation)

    @staticmethod
    def snapshot(content: bytes, generation: int) -> Snapshot:
        nothing = cast(Any, None)
        return Snapshot(
            generation=generation,
            parameter_set=content.decode(),
            parameters=nothing,
            registry=nothing,
            trust=nothing,
            tenants=nothing,
            classifiers=(),
            limits=Limits(max_body_bytes=1, max_keys=1),
            lowest_latency_paths=(),
            encoded_bodies_pass=False,
            safe=nothing,
            safe_set="safe@0",
            degrade=nothing,
            fallback=nothing,
        )

    def reloaded(self, generation: int) -> None:
        self.heard.append(("reloaded", generation))

    def reload_failed(self, reason: str) -> None:
        self.heard.append(("failed", reason))

    def consider(self, content: bytes | None) -> str:
        if content is None:
            self.path.unlink(missing_ok=True)
        else:
            self.path.write_bytes(content)
        return self.reloader.consider()

    @property
    def current(self) -> tuple[int, str]:
        return self.board.current.generation, self.board.current.parameter_set


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "extproc.yaml", b"a")


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]


def test_the_content_of_the_start_is_no_reload(world: World) -> None:
    assert world.consider(b"a") == "unchanged"
    assert world.built == []
    assert world.heard == []


def test_without_the_content_of_the_start_the_first_look_builds(world: World) -> None:
    reloader = Reloader(read=world.path.read_bytes, build=world.build, board=world.board, observer=world)
    assert reloader.consider() == "reloaded"
    assert world.current == (2, "a")


def test_a_changed_content_is_published_with_the_next_generation(world: World) -> None:
    assert [world.consider(content) for content in (b"b", b"c")] == ["reloaded", "reloaded"]
    assert world.current == (3, "c")
    assert world.heard == [("reloaded", 2), ("reloaded", 3)]
    assert world.board.publishes == 2


def test_a_touch_is_no_change(world: World) -> None:
    world.consider(b"b")
    assert [world.consider(b"b") for _ in range(3)] == ["unchanged"] * 3
    assert world.built == [b"b"]
    assert world.current == (2, "b")


def test_a_bad_content_keeps_the_old_snapshot_and_is_told_once_in_one_line(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    assert world.consider(b"bad1 bad2") == "invalid"
    assert [world.consider(b"bad1 bad2") for _ in range(3)] == ["unchanged"] * 3
    assert world.current == (1, "a")
    assert world.heard == [("failed", "invalid")]
    (line,) = errors(caplog)
    assert "bad1: is not allowed; bad2: is not allowed" in line
    assert "\n" not in line
    assert "generation 1 stays" in line


def test_another_bad_content_is_told_again(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.consider(b"bad1")
    world.consider(b"bad2")
    assert len(errors(caplog)) == 2
    assert world.heard == [("failed", "invalid")] * 2


def test_the_old_content_after_a_bad_one_tells_that_all_is_well(world: World) -> None:
    world.consider(b"bad")
    assert world.consider(b"a") == "reloaded"
    assert world.heard[-1] == ("reloaded", 2)


@pytest.mark.parametrize("empty", [b"", b" \n\n"])
def test_a_file_emptied_for_a_moment_does_not_mean_all_defaults(world: World, empty: bytes) -> None:
    assert world.consider(empty) == "invalid"
    assert world.built == []
    assert world.current == (1, "a")
    assert world.consider(b"b") == "reloaded"
    assert world.current == (2, "b")


def test_a_file_gone_for_a_moment_is_told_once_and_comes_back(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    assert [world.consider(None) for _ in range(3)] == ["unreadable"] * 3
    assert world.heard == [("failed", "unreadable")]
    assert len(errors(caplog)) == 1
    assert world.current == (1, "a")
    assert world.consider(b"a") == "reloaded"
    assert world.heard[-1] == ("reloaded", 2)
    assert world.consider(b"a") == "unchanged"


def test_gone_twice_is_told_twice(world: World, caplog: pytest.LogCaptureFixture) -> None:
    for content in (None, b"a", None):
        world.consider(content)
    assert len(errors(caplog)) == 2


def test_a_bad_file_gone_and_back_is_not_told_again(world: World, caplog: pytest.LogCaptureFixture) -> None:
    assert [world.consider(content) for content in (b"bad", None, b"bad")] == [
        "invalid",
        "unreadable",
        "unchanged",
    ]
    assert len(errors(caplog)) == 2
    assert world.current == (1, "a")


def test_a_missing_file_the_content_refers_to_keeps_the_old_snapshot(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    assert world.consider(b"secret missing") == "unreadable"
    assert world.current == (1, "a")
    assert "/run/token" in errors(caplog)[0]


def test_a_bug_in_building_keeps_the_old_snapshot(world: World, caplog: pytest.LogCaptureFixture) -> None:
    assert world.consider(b"bug") == "internal"
    assert world.current == (1, "a")
    assert world.heard == [("failed", "internal")]
    assert caplog.records[-1].exc_info is not None
    assert world.consider(b"b") == "reloaded"
    assert world.current == (2, "b")


def test_a_generation_the_board_refuses_is_a_bug_and_not_the_end(world: World) -> None:
    reloader = Reloader(
        read=world.path.read_bytes,
        build=lambda content, _: world.snapshot(content, 1),
        board=world.board,
        observer=world,
    )
    assert reloader.consider() == "internal"
    assert world.current == (1, "a")


# --- in a thread, as the sidecar does it


class Heard:
    """Metrics that note what is called, and whether on the event loop's thread."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, bool]] = []

    def __getattr__(self, name: str) -> Any:
        main = threading.main_thread()
        return lambda *_: self.calls.append((name, threading.current_thread() is main))


class Control:
    """A control plane that follows each config at once."""

    settings = load(b"{}")

    async def configure(self, settings: Settings) -> None:
        assert settings.pools == []


def in_a_thread(world: World, heard: Heard, build: Any) -> Reloader:
    source = cast(Any, type("Source", (), {"waiting": (), "settings": Control.settings}))
    control = cast(Any, Control())
    keeper = Keeper(world.board, cast(Any, None), cast(Any, None))
    reloads = _Reloads(cast(Any, heard), keeper, source, control, None, asyncio.get_running_loop())
    return Reloader(read=world.path.read_bytes, build=build, board=reloads, observer=reloads, content=b"a")


async def test_the_event_loop_turns_during_a_slow_build(world: World) -> None:
    go, heard = threading.Event(), Heard()

    def build(content: bytes, generation: int) -> Snapshot:
        go.wait(5)
        return world.snapshot(content, generation)

    world.path.write_bytes(b"b")
    waiter = asyncio.create_task(world.board.next(1))
    look = asyncio.create_task(asyncio.to_thread(in_a_thread(world, heard, build).consider))
    begin = time.monotonic()
    for _ in range(20):
        await asyncio.sleep(0.005)
    assert time.monotonic() - begin < 2
    assert world.current == (1, "a")
    go.set()
    assert await asyncio.wait_for(look, 2) == "reloaded"
    assert (await asyncio.wait_for(waiter, 2)).parameter_set == "b"
    assert heard.calls == [("reloaded", True), ("published", True), ("waiting", True)]


async def test_a_failure_in_a_thread_is_told_on_the_event_loop(world: World) -> None:
    heard = Heard()
    world.path.write_bytes(b"bad")
    assert await asyncio.to_thread(in_a_thread(world, heard, world.build).consider) == "invalid"
    assert heard.calls == [("reload_failed", True)]


async def test_a_generation_that_somebody_else_took_meanwhile_is_no_obstacle(world: World) -> None:
    heard = Heard()
    world.path.write_bytes(b"b")
    reloader = in_a_thread(world, heard, lambda content, _: world.snapshot(content, 1))
    assert await asyncio.to_thread(reloader.consider) == "reloaded"
    assert world.current == (2, "b")


def test_a_loop_that_ends_during_a_build_waits_for_no_publish_that_cannot_come(world: World) -> None:
    """The end of the loop waits for its threads, and a thread waits for the loop: one has to give way."""
    begun, go = threading.Event(), threading.Event()

    def build(content: bytes, generation: int) -> Snapshot:
        begun.set()
        go.wait(5)
        time.sleep(0.1)
        return world.snapshot(content, generation)

    async def run() -> None:
        look = asyncio.create_task(asyncio.to_thread(in_a_thread(world, Heard(), build).consider))
        while not begun.is_set():
            await asyncio.sleep(0.01)
        look.cancel()
        go.set()

    begin = time.monotonic()
    world.path.write_bytes(b"b")
    asyncio.run(run())
    assert time.monotonic() - begin < 3

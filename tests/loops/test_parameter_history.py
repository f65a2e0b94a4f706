"""The history and its file: every step survives a process that is killed right after it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from extproc.edge.state_file import StateFile
from extproc.loops.parameter_history import RETRY_S, ParameterHistory, UnknownVersion
from extproc.settings import Settings, load


def config(normal: float, **_: object) -> Settings:
    return load(f"inference_params: {{temperature: {{normal: {normal}}}}}")


A, B, C = config(0.7), config(0.75), config(0.8)


def version(settings: Settings) -> str:
    return settings.parameters().version()


class World:
    def __init__(self, folder: Path) -> None:
        self.file = StateFile(folder / "parameters.json")
        self.now = 1000.0
        self.restart()

    def restart(self) -> None:
        """As after a kill: nothing but the file is left."""
        self.history = ParameterHistory(self.file.load(), save=self.file.save, wall=self._wall)

    def _wall(self) -> float:
        self.now += 1
        return self.now


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_the_set_in_force_is_the_histories_not_the_configs(world: World) -> None:
    history = world.history
    assert history.effective(A) is A
    history.prove("did well")
    assert history.effective(B) is B
    incident = history.roll_back("slo_breached", {"worst_p99_s": 2.5})
    assert incident is not None and incident.state == "rolled_back"
    assert incident.evidence["from"] == B.parameters().label() and incident.evidence["to"] == A.parameters().label()
    in_force = history.effective(B)
    assert in_force.parameters() == A.parameters()
    assert in_force.listeners == B.listeners, "all that is no parameter is the config's"
    world.restart()
    assert world.history.effective(B).parameters() == A.parameters()
    assert world.history.roll_back("slo_breached", {}) is None, "once"


PLAN: list[Callable[[ParameterHistory], object]] = [
    lambda history: history.effective(A),
    lambda history: history.prove("did well"),
    lambda history: history.effective(B),
    lambda history: history.roll_back("slo_breached", {}),
    lambda history: history.effective(B),
    lambda history: history.effective(C),
    lambda history: history.prove("did well"),
    lambda history: history.activate(version(B)[:6], by="ops"),
    lambda history: history.pin(pin=True, by="ops"),
    lambda history: history.effective(A),
    lambda history: history.pin(pin=False, by="ops"),
    lambda history: history.effective(A),
    lambda history: history.roll_back("slo_breached", {}),
]


@pytest.mark.parametrize("killed_after", range(len(PLAN)))
def test_a_plan_ends_the_same_wherever_it_is_interrupted(tmp_path: Path, killed_after: int) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "cut").mkdir()
    whole, cut = World(tmp_path / "whole"), World(tmp_path / "cut")
    for number, step in enumerate(PLAN):
        step(whole.history)
        step(cut.history)
        if number == killed_after:
            cut.restart()
    assert cut.history.history == whole.history.history
    assert cut.history.label == C.parameters().label(), "b was tried by hand, a came by config: back to c"


def test_a_full_disk_changes_nothing_but_what_is_said(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.history.effective(A)
    good, full = world.file.save, [True]
    world.history._save = lambda data: False if full[0] else good(data)
    assert world.history.effective(B).parameters() == B.parameters()
    assert world.history.unsaved and world.history.label == B.parameters().label()
    full[0] = False
    world.history.pin(pin=True, by="ops")
    assert not world.history.unsaved
    world.restart()
    assert world.history.label == B.parameters().label() and world.history.history.pinned


def test_when_the_disk_is_free_again_the_file_is_written_without_any_news(world: World, tmp_path: Path) -> None:
    world.history.effective(A)
    in_the_way = tmp_path / "parameters.json.new"
    in_the_way.mkdir()
    world.history.effective(B)
    failures = world.file.failures
    for now in range(2000, 2030):
        world.history.keep(now=float(now))
    assert world.history.unsaved and world.file.failures == failures + 30 / RETRY_S, "a full disk is left alone"
    in_the_way.rmdir()
    world.history.keep(now=2000.0 + 30 + RETRY_S)
    assert not world.history.unsaved
    world.restart()
    assert world.history.label == B.parameters().label()


def test_a_clock_that_stepped_back_does_not_keep_it_from_being_written(world: World, tmp_path: Path) -> None:
    in_the_way = tmp_path / "parameters.json.new"
    in_the_way.mkdir()
    world.history.effective(A)
    world.history.keep(now=9000.0)
    in_the_way.rmdir()
    world.history.keep(now=10.0)
    assert not world.history.unsaved


@pytest.mark.parametrize("kept", [b"", b"{", b"[]", b'{"active":"x"}', b'{"versions":7}'])
def test_a_broken_file_begins_anew(tmp_path: Path, kept: bytes) -> None:
    (tmp_path / "parameters.json").write_bytes(kept)
    assert World(tmp_path).history.effective(A) is A


def test_a_set_that_a_later_version_cannot_read_gives_way_to_the_configs(world: World) -> None:
    world.history.effective(A)
    world.history.prove("did well")
    world.history.effective(B)
    world.history.roll_back("slo_breached", {})
    text = (world.file.load() or b"").replace(b'"coupling"', b'"gone"')
    world.file.save(text)
    world.restart()
    assert world.history.effective(B).parameters() == B.parameters()


def test_while_blocked_a_set_waits_and_comes_when_it_may(world: World) -> None:
    history = world.history
    history.effective(A)
    assert not history.block("parameter_breaker")
    assert history.effective(B).parameters() == A.parameters()
    before = history.revision
    assert history.block("") and history.revision > before
    assert history.effective(B).parameters() == B.parameters()


def test_a_version_by_its_first_digits(world: World) -> None:
    world.history.effective(A)
    world.history.effective(B)
    assert world.history.activate(version(A)[:5], by="ops") is not None
    assert world.history.activate(version(A), by="ops") is None, "it is already"
    for wrong in ("", "zz"):
        with pytest.raises(UnknownVersion):
            world.history.activate(wrong, by="ops")

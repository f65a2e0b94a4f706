"""The benchmark of a tick: it does what it says it measures, and its table."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import tick
from bench.errors import CannotMeasure
from extproc.model.xds import Kind

PUSHED = ["build", "check", "encode", "files", "push to one Envoy"]


def test_a_fleet_is_measured_and_served(tmp_path: Path) -> None:
    fleet = tick.Fleet(3, tmp_path)
    inputs = fleet.readings(fleet.spec, fleet.endpoints, now=fleet.now)
    assert all(each.memory is not None and each.p99_s is not None for each in inputs)
    assert len({each.memory.value for each in inputs if each.memory}) == 3
    before = [each.memory.value for each in inputs if each.memory]
    fleet.pass_time(changed=True)
    inputs = fleet.readings(fleet.spec, fleet.endpoints, now=fleet.now)
    assert [each.memory.value for each in inputs if each.memory] != before


def test_every_step_is_measured_and_ends_at_an_envoy(tmp_path: Path) -> None:
    fleet = tick.Fleet(3, tmp_path)
    steps = tick.Steps(fleet)
    before = fleet.encoded.of(Kind.EDS)
    steps.run(published=True)
    assert list(steps.ms) == ["readings", "weigh", "place", *PUSHED]
    assert fleet.encoded.of(Kind.EDS).version != before.version
    assert (tmp_path / "xds" / "eds" / "chat.json").is_file()


def test_without_a_change_nothing_is_pushed(tmp_path: Path) -> None:
    assert not set(tick.steps_ms(3, 1, tmp_path, changed=False)) & set(PUSHED)
    assert len(tick.whole_ms(3, 2, tmp_path, changed=False)) == 2


def test_the_table(tmp_path: Path) -> None:
    lines = tick.measure(4, 2, tmp_path).splitlines()
    assert lines[0] == "4 endpoints, 20 requests each per 5 s: one tick, CPU ms"
    assert [line.split("  ")[0] for line in lines[3:]] == [
        "readings",
        "weigh",
        "place",
        *PUSHED,
        "all of it",
        "the slowest of them",
    ]
    assert lines[6].split()[1] == "-"
    assert "aim <= 50" in lines[-1]


def test_a_tick_that_does_something_else_is_no_measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tick.Fleet, "pass_time", lambda self, changed=False: setattr(self, "now", self.now + 5))
    with pytest.raises(CannotMeasure, match="pushed nothing"):
        tick.whole_ms(3, 1, tmp_path, changed=True)

"""Latencies kept for the detectors, and baselines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from extproc.loops.drift import DriftWatch, decode, evaluated
from extproc.model.drift import Drift
from extproc.model.protection import Incident
from extproc.settings import load
from tests.windows.samples import sample

GOOD, NEW = "default@good", "default@new"
RANDOM = np.random.default_rng(5)


class World:
    def __init__(self, text: str = "drift: {max_keys: 5}") -> None:
        self.saved: list[bytes] = []
        self.incidents: list[Incident] = []
        self.now = 1000.0
        self.active = GOOD
        self.watch = DriftWatch(
            None,
            load(text).drift,
            pool_of=lambda cluster: cluster,
            save=self.saved.append,
            report=self.incidents.append,
        )

    def serve(self, count: int, factor: float = 1.0, *, params: str = "", **changes: Any) -> None:
        given = {"cluster": "chat", "tier": "normal", "length": "512", "params": params or self.active, **changes}
        values = RANDOM.lognormal(-1.2, 0.4, count) * factor
        samples = [sample(total_s=float(value), **given) for value in values]
        self.watch.record(samples, active=self.active, last_good=GOOD, now=self.now)

    def look(self, seconds: float = 10.0) -> dict[str, Drift]:
        self.now += seconds
        verdicts = evaluated(self.watch.views(last_good=GOOD, now=self.now))
        self.watch.concluded(verdicts, wall=self.now)
        return {each.key.parameter_set: each.state for each in verdicts}


@pytest.fixture
def world() -> World:
    found = World()
    found.serve(2000)
    found.watch.freeze(wall=5.0, now=found.now)
    return found


def test_before_the_first_baseline_it_is_unknown() -> None:
    world = World()
    world.serve(500)
    assert world.look() == {GOOD: Drift.UNKNOWN}
    assert world.incidents == []


def test_a_new_set_is_compared_with_the_last_good_one(world: World) -> None:
    world.active = NEW
    world.now += 100
    world.serve(1000, 1.5)
    assert world.look() == {NEW: Drift.DRIFT}
    assert world.watch.status.verdicts[0].baseline_set == GOOD
    (incident,) = world.incidents
    assert (incident.subject, incident.state, incident.active) == ("chat/normal", "drift", True)
    assert incident.evidence["parameter_set"] == NEW
    assert world.watch.status.drifting() == {"chat"}
    world.now += 100
    world.serve(1000)
    assert world.look() == {NEW: Drift.FINE}
    assert [each.state for each in world.incidents] == ["drift", "fine"]


def test_the_quick_look_warns_before_the_window_does(world: World) -> None:
    world.serve(60, 3.0)
    assert world.look()[GOOD] in (Drift.WARNING, Drift.DRIFT)


def test_a_drift_of_somebody_who_fell_silent_is_over(world: World) -> None:
    world.active = NEW
    world.now += 100
    world.serve(1000, 2.0)
    world.look()
    assert world.look(200) == {}
    assert (world.incidents[-1].state, world.incidents[-1].reason) == ("unknown", "silent")


@pytest.mark.parametrize(
    "changes", [{"status": 503}, {"status": 400}, {"fallback": "pool_breaker"}, {"flags": ("DC",)}]
)
def test_what_says_nothing_of_the_pool_is_left_out(changes: dict[str, Any]) -> None:
    world = World()
    world.serve(100, **changes)
    assert world.look() == {}


def test_requests_nobody_judged_are_left_out() -> None:
    world = World()
    world.watch.record([sample(params="")], active=GOOD, last_good=GOOD, now=1.0)
    assert world.look() == {}


def test_a_hundred_sets_are_bounded_and_silent_ones_make_room() -> None:
    world = World()
    for number in range(100):
        world.serve(1, params=f"set@{number}")
    assert len(world.look()) == 5 and world.watch.unkept == 95
    world.now += 100
    world.serve(1, params="late@1")
    assert world.look(0) == {"late@1": Drift.UNKNOWN}


def test_a_baseline_outlives_a_restart(world: World) -> None:
    kept = decode(world.saved[-1])
    assert kept == world.watch.baselines
    baseline = kept.of(GOOD)
    assert baseline is not None and len((baseline.of("chat", "normal") or {})["512"]) == 2000
    assert decode(b"{").kept == () == decode(None).kept


def test_nothing_to_freeze() -> None:
    assert World().watch.freeze(wall=1.0, now=1000.0) == 0


def test_too_few_make_no_baseline() -> None:
    world = World()
    world.serve(29)
    assert world.watch.freeze(wall=1.0, now=world.now) == 0


def test_right_after_a_breach_an_operators_word_goes_by_the_window() -> None:
    world = World()
    world.serve(500)
    world.watch.breached()
    world.serve(5)
    assert world.watch.freeze(wall=1.0, now=world.now) == 505
    baseline = world.watch.baselines.of(GOOD)
    assert baseline is not None and len((baseline.of("chat", "normal") or {})["512"]) == 505


def test_a_set_that_becomes_active_collects_anew() -> None:
    world = World("drift: {freeze: {after_s: 5, samples: 50}}")
    world.serve(100)
    assert world.watch.is_ripe(now=world.now + 5)
    world.active = NEW
    world.serve(10)
    assert not world.watch.is_ripe(now=world.now + 5)
    world.serve(90)
    assert world.watch.is_ripe(now=world.now + 5)
    world.watch.breached()
    assert not world.watch.is_ripe(now=world.now + 500)


def test_a_clock_that_steps_breaks_nothing(world: World) -> None:
    for step in (-5000.0, 9000.0, -100.0):
        world.now += step
        world.serve(50)
        world.look(0)

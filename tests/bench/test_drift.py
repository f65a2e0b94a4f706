"""The drift benchmark: its streams, its methods, and one small run of all of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bench.drift import picture, streams, tick
from bench.drift.__main__ import Row, every_stream, verdicts
from bench.drift.methods import CONFIRMED, METHODS, OURS, THRESHOLD, Alarms, delay_s, false_alarms_per_day
from extproc.loops.drift import evaluated

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["lognormal", "bimodal", "heavy tail", "diurnal", "length mix"])
def test_a_stream_is_the_same_for_the_same_seed_and_in_order(name: str) -> None:
    make = every_stream()[name]
    one, other = (make(np.random.default_rng(1), 120.0, False) for _ in range(2))
    assert np.array_equal(one.latency_s, other.latency_s)
    assert np.all(np.diff(one.at_s) >= 0) and one.at_s[-1] < 120
    assert len(one.at_s) == len(one.latency_s) == len(one.length) and np.all(one.latency_s > 0)


def test_a_change_is_one_from_its_moment_on() -> None:
    random = np.random.default_rng(1)
    before = streams.lognormal(random, 60.0, False)
    after = streams.changed(before, random, 30.0, factor=1.3)
    late = before.at_s >= 30
    assert np.array_equal(after.latency_s[~late], before.latency_s[~late])
    assert np.allclose(after.latency_s[late], before.latency_s[late] * 1.3)
    tail = streams.changed(before, random, 30.0, tail_share=0.1).latency_s - before.latency_s
    assert not tail[~late].any() and 0.03 < np.mean(tail[late] > 0) < 0.2


def test_figures_of_alarms() -> None:
    alarms = Alarms(at_s=[10.0, 20.0, 30.0, 40.0])
    alarms.raised[THRESHOLD] = [True, False, True, True]
    alarms.raised[OURS] = [False, False, False, True]
    alarms.quick_at_s = [27.0]
    assert false_alarms_per_day(alarms, THRESHOLD) == 2 * 86_400 / 40
    assert false_alarms_per_day(alarms, OURS) == 2 * 86_400 / 40
    assert delay_s(alarms, THRESHOLD, 25.0) == 5.0
    assert delay_s(alarms, OURS, 25.0) == 2.0
    assert delay_s(alarms, THRESHOLD, 41.0) is None


def row(**found: float | None) -> Row:
    usual: dict[str, float | None] = {"ours": 5.0, "plain": 20.0, "tail": 30.0, "alarms": 0.0, **found}
    change = dict.fromkeys(METHODS) | {OURS: usual["ours"], THRESHOLD: usual["plain"]}
    tail = dict.fromkeys(METHODS) | {OURS: usual["tail"]}
    delays = {"+30 %": change, "1.5 % +2 s": tail}
    return Row("x", dict.fromkeys(METHODS, 0.0) | {OURS: usual["alarms"] or 0.0}, delays)


@pytest.mark.parametrize(
    ("changed", "held"),
    [
        ({}, [True, True, True, True]),
        ({"ours": 11.0}, [True, False, True, True]),
        ({"ours": None}, [True, False, True, True]),
        ({"plain": None}, [True, True, True, True]),
        ({"tail": None}, [True, True, False, True]),
        ({"alarms": 3.0}, [False, True, False, True]),
    ],
)
def test_verdicts_can_fail(changed: dict[str, float | None], held: list[bool]) -> None:
    assert list(verdicts([row(**changed)]).values()) == held


def test_a_confirmed_false_alarm_is_told() -> None:
    one = row()
    wrong = Row(one.stream, {**one.false_per_day, CONFIRMED: 1.0}, one.delay_s)
    assert list(verdicts([wrong]).values())[-1] is False


def test_one_look_at_all_keys() -> None:
    watch = tick.watched(keys=5, samples=5000)
    found = evaluated(watch.views(last_good="default@1", now=1050))
    assert len(found) == 5 and {each.state.value for each in found} == {"fine"}


def test_a_picture_has_a_bar_for_each() -> None:
    drawn = picture.svg([row()], ["+30 %", "1.5 % +2 s"])
    assert drawn.count("<rect") == 1 + len(METHODS) * 3 and "not found" in drawn


def test_the_command_measures_all_of_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.drift", "--json", "--hours", "0.05", "--runs", "1", "--seconds", "0.5"]
    command += ["--streams", "lognormal", "--picture", str(tmp_path / "drift.svg")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    (only,) = found["rows"]
    assert only["false_per_day"][OURS] == 0 and only["delay_s"]["+100 %"][OURS] < 10
    assert found["tick"]["cpu_in_thread_ms"] > 0
    assert (tmp_path / "drift.svg").read_text().startswith("<svg")

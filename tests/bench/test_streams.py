"""Many streams at once: the arithmetic, and a tiny run on the real Envoy."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from bench.errors import CannotMeasure
from bench.streams import __main__ as command
from bench.streams import native, report
from bench.streams.measure import Held, Look, Looks, Plan, Result, Seen, Spread, measure
from bench.variants import NONE, OURS_FAST

TINY = Plan(streams=20, seconds=2.0, rate=5.0, spread_s=0.3)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short enough for socket paths, unlike tmp_path."""
    with tempfile.TemporaryDirectory(prefix="bs-") as name:
        yield Path(name)


def silent(_: str) -> None: ...


def result(name: str, p99: float, *, streams: int = 100, complete: int = 100) -> Result:
    judged, spread = (streams if name == OURS_FAST else 0), Spread(200.0, p99, 300.0)
    seen = Seen(1, streams, complete, judged, streams * 10, "", *[spread] * 6)
    looks = [
        Look(at, envoy_s=at, envoy_mb=50.0, sidecar_s=cpu if name == OURS_FAST else None, sidecar_mb=60.0)
        for at, cpu in ((0.0, 1.0), (2.0, 1.22), (12.0, 1.42), (13.0, 1.44))
    ]
    return Result(name, seen, Looks(*looks), 0.01, Held(0, streams, 0) if name == OURS_FAST else None, 0)


def test_cpu_is_told_apart_by_what_it_is_for() -> None:
    ours = result(OURS_FAST, 200.0)
    assert ours.held_us == pytest.approx(100)  # 0.2 s - 10 s idle at 1 % = 0.1 s over 100 streams and 10 s
    assert ours.opened_us == pytest.approx(2100)  # 0.22 - 0.02 s while they open, 0.02 - 0.01 s while they end
    assert ours.envoy_us == pytest.approx(13_000)
    assert result(NONE, 200.0).held_us is None


def test_the_verdict_compares_p99_of_spacing() -> None:
    near, far = [result(NONE, 200.0), result(OURS_FAST, 200.9)], [result(NONE, 200.0), result(OURS_FAST, 201.2)]
    assert "+0.90 ms, <= 1 ms met" in report.text(TINY, near)
    assert "+1.20 ms, <= 1 ms MISSED" in report.text(TINY, far)
    assert set(json.loads(json.dumps(report.tree(TINY, far)))["met"].values()) == {False}


def test_the_rush_of_opening_is_told_apart() -> None:
    ours = result(OURS_FAST, 205.0)
    ours = replace(ours, seen=msgspec.structs.replace(ours.seen, held_spacing_ms=Spread(200.0, 200.5, 201.0)))
    told = report.text(TINY, [result(NONE, 200.0), ours])
    assert "all of the run: +5.00 ms, <= 1 ms MISSED" in told
    assert "while all are open: +0.50 ms, <= 1 ms met" in told


def test_a_stream_that_is_missing_unjudged_or_left_open_is_no_good_run() -> None:
    ours = result(OURS_FAST, 200.0)
    assert report.good([result(NONE, 200.0), ours])
    assert not report.good([result(NONE, 200.0, complete=99), ours])
    assert not report.good([replace(ours, held=Held(0, 100, 1))])
    assert not report.good([replace(result(NONE, 200.0), name=OURS_FAST)])
    assert not report.good([replace(ours, failed_open=1)])


def test_a_missing_compiler_is_one_line(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(CannotMeasure, match="apt-get install g"):
        native.program(folder)


def test_nonsense_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--streams", "0"])
    assert "more than 0" in capsys.readouterr().err


@pytest.mark.envoy
@pytest.mark.parametrize("apart", [False, True])
def test_a_tiny_run(folder: Path, apart: bool) -> None:
    if shutil.which(native.COMPILER) is None:
        if os.environ.get("CI") == "true":
            pytest.fail("g++ is missing: apt-get install g++")
        pytest.skip("g++ is not installed: apt-get install g++")
    plan = replace(TINY, apart=apart)
    found = measure(plan, folder, silent)
    assert [each.name for each in found] == [NONE, OURS_FAST]
    assert report.good(found), report.text(plan, found)
    for each in found:
        assert each.seen.events == plan.streams * plan.events
        assert 150 < each.seen.spacing_ms.p50 < 250
        assert 150 < each.seen.held_spacing_ms.p50 < 250
        assert each.seen.delay_ms.p50 > 0
    assert found[1].held is not None
    assert "ours over no ext_proc" in report.text(plan, found)

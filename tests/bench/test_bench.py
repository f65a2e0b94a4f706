"""The benchmark's own arithmetic, and one tiny round on the real Envoy."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from bench import __main__ as command
from bench import compare as compare_module
from bench import instructions, load, native_server, profile, report, soak
from bench.bodies import SIZES, body, chat
from bench.canned import CannedStream
from bench.compare import Plan, compare
from bench.errors import CannotMeasure
from bench.micro import STEPS, body_message, headers_message, micro, recording, servicer
from bench.processes import ROOT, cpu_s, resident_mb, rss_mb
from bench.variants import KINDS, NAMES, NATIVE, NONE, OURS_TWO, config_text, envoy_config, routes
from extproc.codec.grpc_messages import OK
from extproc.settings import load as load_settings

H2LOAD = """starting benchmark...
finished in {time}, 1174.55 req/s, 162.88KB/s
requests: 4 total, 4 started, 4 done, 3 succeeded, 1 failed, 0 errored, 0 timeout
"""

LOG = "1796071212206180\t200\t41620\n1796071212206217\t200\t1000\n1\t200\t2000\n2\t503\t9\n"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short enough for socket paths, unlike tmp_path."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        yield Path(name)


def silent(_: str) -> None: ...


@pytest.mark.parametrize("label", SIZES)
def test_bodies_have_their_size_and_name_an_order_last(label: str) -> None:
    data = body(label).data
    tree = json.loads(data)
    assert len(data) == SIZES[label]
    assert data == body(label).data
    assert not data.isascii()
    assert "order #12345678" in tree["messages"][-1]["content"]
    assert len(tree["messages"]) > 3


def test_a_body_has_a_least_size() -> None:
    with pytest.raises(ValueError, match="more than 100 bytes"):
        chat(100)


@pytest.mark.parametrize(("text", "seconds"), [("1.70s", 1.7), ("170.50ms", 0.1705), ("900us", 0.0009)])
def test_h2load_output_is_read(text: str, seconds: float) -> None:
    seen = load.read(H2LOAD.format(time=text), LOG, 4)
    assert (seen.requests, seen.errors, seen.p50_ms, seen.p99_ms) == (4, 1, 2.0, 41.62)
    assert seen.seconds == pytest.approx(seconds)
    assert seen.rps == pytest.approx(4 / seconds)


def test_requests_without_a_log_line_are_errors() -> None:
    assert load.read(H2LOAD.format(time="1s"), "", 4).errors == 4


def test_no_result_is_said() -> None:
    with pytest.raises(CannotMeasure, match="no result"):
        load.read("", "", 1)


def test_a_missing_program_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert command.main(["--quick"]) == 1
    assert capsys.readouterr().err == "bench: h2load is not installed: apt-get install nghttp2-client\n"


def test_resident_memory_is_read() -> None:
    assert resident_mb("Name:\tx\nVmRSS:\t   51200 kB\nThreads:\t3\n") == 50.0
    assert rss_mb(os.getpid()) > 1
    with pytest.raises(CannotMeasure):
        resident_mb("Name:\tzombie\n")


def test_cpu_of_a_process_is_that_of_its_threads() -> None:
    before, expected = cpu_s(os.getpid()), time.process_time()
    while time.process_time() < expected + 0.05:
        pass
    assert cpu_s(os.getpid()) - before == pytest.approx(0.05, abs=0.02)


def test_a_table_is_aligned() -> None:
    assert report.table(("a", "b", "n"), [("x", "yy", "10")]).splitlines() == [
        "a  b    n",
        "-  --  --",
        "x  yy  10",
    ]


def test_only_judged_routes_turn_the_filter_on() -> None:
    settings = load_settings(config_text(8000, None))
    judged = [r for r in routes(envoy_config(settings, Path("/x"), judged=True)) if "typed_per_filter_config" in r]
    plain = [r for r in routes(envoy_config(settings, Path("/x"), judged=False)) if "typed_per_filter_config" in r]
    assert judged and not plain


def test_a_config_is_laid_under_the_benchmarks_own(folder: Path) -> None:
    mine = folder / "mine.yaml"
    mine.write_text("parameter_set: mine\n")
    settings = load_settings(config_text(8000, mine))
    assert settings.parameter_set == "mine"
    assert settings.pools[0].schedules_by_priority is True


def test_a_variant_talks_as_its_name_says() -> None:
    settings = {name: load_settings(config_text(8000, None, kind)) for name, kind in KINDS.items()}
    assert {name for name, each in settings.items() if each.transport == "grpc"} == {
        name for name in NAMES if "grpc" in name
    }
    assert {name for name, each in settings.items() if each.workers == 2} == {OURS_TWO}


def test_every_step_is_measured(folder: Path) -> None:
    (steps,) = micro(("2 KB",), folder, None, silent)
    assert tuple(steps.us) == STEPS
    assert all(us > 0 for us in steps.us.values())
    assert steps.us["whole request"] > steps.us["parse"]


def test_a_canned_stream_is_answered_and_ends(folder: Path) -> None:
    data = body("2 KB").data
    with recording(folder, None) as (recorder, _, settings), patch.object(recorder, "stream_ended") as ended:
        stream = CannedStream(servicer(settings, recorder), (headers_message(len(data)), body_message(data)))
        stream()
    assert [call.args for call in ended.call_args_list] == [("completed",)] * 3
    assert b"customer-4711" in stream.sink.last
    assert OK in stream.sink.last


def test_the_page_names_every_option() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    known = {option for action in _options() for option in action.option_strings if option.startswith("--")}
    assert set(re.findall(r"`(--[a-z-]+)", page)) == known - {"--help"}


def _options() -> list[argparse.Action]:
    return command._parser()._actions


def test_a_baseline_is_of_a_whole_run(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--quick", "--write-baseline"])
    assert "not with --quick" in capsys.readouterr().err


@pytest.fixture
def h2load() -> None:
    if shutil.which(load.PROGRAM) is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{load.PROGRAM} is missing: apt-get install {load.PACKAGE}")
        pytest.skip(f"{load.PROGRAM} is not installed: apt-get install {load.PACKAGE}")


@pytest.mark.envoy
def test_one_tiny_round(folder: Path, h2load: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare_module, "PACED_SECONDS", 0.1)
    names = tuple(name for name in NAMES if name != NATIVE or native_server.built(silent))
    plan = Plan(rounds=1, seconds=0.05, bodies=("2 KB",), connections=(1,), variants=names)
    seen = compare(plan, folder, None, silent)
    assert [case.variant for case in seen.rounds if case.rate is None] == list(names)
    assert [case.variant for case in seen.rounds if case.rate is not None] == list(plan.paced)
    assert seen.errors == 0
    for case, (only,) in seen.rounds.items():
        assert only.envoy_us > 0
        assert (only.sidecar_us is None) == (case.variant == NONE)
    assert "CPU: ours, fast / no-op, grpc.aio" in report.text(report.Results(seen))


@pytest.mark.envoy
def test_a_short_soak(folder: Path, h2load: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "SETTLE_S", 0.0)
    monkeypatch.setattr(soak, "BACK_S", 1.0)
    alone, many = soak.soaks(400, folder, None, silent)
    assert list(alone.processes) == ["sidecar"]
    assert list(many.processes) == ["supervisor", "control", "worker 1", "worker 2"]
    for each in (alone, many):
        assert (each.requests, each.errors, each.streams) == (400, 0, (0, 0))
        assert {len(process.rss_mb) for process in each.processes.values()} == {soak.SAMPLES}


@pytest.mark.envoy
def test_a_short_profile(folder: Path, h2load: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instructions, "told", lambda *_: "counted")
    monkeypatch.setattr(profile, "SAMPLES_PER_S", 50)
    told = profile.profile(folder / "flames.svg", 1, folder, None, silent)
    assert told.endswith("counted")
    assert "<svg" in (folder / "flames.svg").read_text()

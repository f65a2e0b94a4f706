"""The benchmark's own arithmetic, and one tiny round on the real Envoy."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import __main__ as command
from bench import load, noop_server, report, soak
from bench.bodies import SIZES, body, chat
from bench.compare import Case, Measured, Plan, Round, compare, ratios
from bench.errors import CannotMeasure
from bench.load import Load
from bench.micro import STEPS, body_message, headers_message, micro
from bench.processes import cpu_s, resident_mb, rss_mb
from bench.variants import NAMES, NONE, NOOP, OURS, config_text, envoy_config, routes
from extproc.codec.wire import ext_proc_pb2 as pb
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


def one_round(sidecar_us: float | None, *, errors: int = 0) -> Round:
    return Round(Load(10, errors, 1.0, 1.0, 2.0), errors, sidecar_us, 100.0, None if sidecar_us is None else 50.0)


def measured(ours: list[float], noop: list[float], *, errors: int = 0) -> Measured:
    return Measured(
        {
            Case(NONE, "2 KB", 1): [one_round(None) for _ in ours],
            Case(NOOP, "2 KB", 1): [one_round(us) for us in noop],
            Case(OURS, "2 KB", 1): [one_round(us, errors=errors) for us in ours],
        }
    )


def test_ratios_are_taken_round_by_round() -> None:
    (ratio,) = ratios(measured([120, 300, 130], [100, 200, 100]))
    assert (ratio.median, ratio.least, ratio.most) == (1.3, 1.2, 1.5)


def test_the_report_shows_targets_and_errors() -> None:
    good = report.Results(measured([120], [100]))
    bad = report.Results(measured([150], [100], errors=2))
    assert good.good and "<= 1.3 met" in report.text(good)
    assert not bad.good and "<= 1.3 MISSED" in report.text(bad)
    assert json.loads(json.dumps(report.tree(bad)))["cases"][2]["rounds"][0]["errors"] == 2


def test_a_table_is_aligned() -> None:
    assert report.table(("a", "b", "n"), [("x", "yy", "10")]).splitlines() == [
        "a  b    n",
        "-  --  --",
        "x  yy  10",
    ]


def test_flat_is_less_than_5_mb_after_the_first_tenth() -> None:
    rising = tuple(50.0 + step for step in range(soak.SAMPLES))
    steep, flat = soak.Soak(200_000, 0, rising), soak.Soak(200_000, 0, (10.0, *[60.0] * 19))
    assert (steep.at(10), steep.at(50), steep.at(100)) == (51.0, 59.0, 69.0)
    assert (steep.growth_mb, steep.flat) == (18.0, False)
    assert steep.slope_mb == pytest.approx(10.0)
    assert (flat.growth_mb, flat.flat, flat.slope_mb) == (0.0, True, 0.0)
    assert not report.Results(Measured(), soak=steep).good
    assert report.Results(Measured(), soak=flat).good


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


def test_the_no_op_answers_both_phases() -> None:
    said, over = noop_server.answer(headers_message(2))
    headers = pb.ProcessingResponse.FromString(said)
    assert not over
    assert headers.WhichOneof("response") == "request_headers"
    said, over = noop_server.answer(body_message(b'{"a":2}'))
    assert over
    answer = pb.ProcessingResponse.FromString(said)
    common = answer.request_body.response
    assert json.loads(common.body_mutation.body) == {"x": 1, "a": 2}
    assert common.header_mutation.set_headers[0].header.raw_value == b"13"
    assert common.clear_route_cache


def test_every_step_is_measured(folder: Path) -> None:
    (steps,) = micro(("2 KB",), folder, None, silent)
    assert tuple(steps.us) == STEPS
    assert all(us > 0 for us in steps.us.values())
    assert steps.us["whole request"] > steps.us["parse"]


@pytest.mark.envoy
def test_one_tiny_round(folder: Path) -> None:
    if shutil.which(load.PROGRAM) is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{load.PROGRAM} is missing: apt-get install {load.PACKAGE}")
        pytest.skip(f"{load.PROGRAM} is not installed: apt-get install {load.PACKAGE}")
    plan = Plan(rounds=1, seconds=0.05, bodies=("2 KB",), connections=(1,))
    seen = compare(plan, folder, None, silent)
    assert [case.variant for case in seen.rounds] == list(NAMES)
    assert seen.errors == 0
    for case, (only,) in seen.rounds.items():
        assert only.envoy_us > 0
        assert (only.sidecar_us is None) == (case.variant == NONE)
    assert "ours / no-op" in report.text(report.Results(seen))


@pytest.mark.envoy
def test_a_short_soak(folder: Path) -> None:
    if shutil.which(load.PROGRAM) is None:
        pytest.skip(f"{load.PROGRAM} is not installed: apt-get install {load.PACKAGE}")
    seen = soak.soak(400, folder, None, silent)
    assert (seen.requests, seen.errors, len(seen.rss_mb)) == (400, 0, soak.SAMPLES)

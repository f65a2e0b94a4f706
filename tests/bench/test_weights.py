"""The benchmark of weights: its model, its arithmetic, and one short run on the real Envoy."""

from __future__ import annotations

import gzip
import json
import math
import tempfile
import xml.etree.ElementTree as xml
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.errors import CannotMeasure
from bench.weights import __main__ as command
from bench.weights import report, scenario
from bench.weights.client import OVERFLOW, Seen
from bench.weights.driver import sidecar_config
from bench.weights.engine import page
from bench.weights.envoy import LEAST_REQUEST, NAMES, OURS, ROUND_ROBIN, ROUND_ROBIN_AGAIN
from bench.weights.figures import figures, reacted, turned
from bench.weights.measure import Run, run
from bench.weights.model import EngineModel
from bench.weights.picture import svg
from bench.weights.scenario import Degraded, Memory
from bench.weights.verdict import Row, rows
from bench.weights.watch import Weights, weights
from bench.weights.work import Work, poisson, rescaled, services, work
from extproc.engines.reading import OWN, Reading, Source, read

MEMORY = Memory(total_mib=1000, weights_mib=200, per_request_mib=100)
HALVED = Degraded(slower=3, memory=0.5)
SCENARIO = scenario.load()


def engine(slots: int = 2, degraded_at: float | None = None) -> EngineModel:
    return EngineModel(slots, MEMORY, HALVED, degraded_at)


class TestModel:
    def test_slots_run_side_by_side_and_the_rest_wait_in_turn(self) -> None:
        model = engine()
        assert [model.take(each, now=0) for each in (1.0, 3.0, 1.0, 1.0)] == [1, 3, 2, 3]
        assert [model.in_flight(now=now) for now in (0, 1, 2, 2.9, 3)] == [4, 3, 2, 2, 0]

    def test_memory_grows_with_what_is_in_flight_and_is_the_limit(self) -> None:
        model = engine()
        assert [model.take(1, now=0) is not None for _ in range(9)] == [True] * 8 + [False]
        assert model.used_mib(now=0) == 1000
        assert model.take(1, now=1) is not None
        assert model.used_mib(now=9) == 200

    def test_from_its_bad_day_on_it_is_slower_and_holds_less(self) -> None:
        model = engine(slots=1, degraded_at=10)
        assert model.take(1, now=8.5) == 9.5
        assert model.take(1, now=9) == 10.5  # began before
        assert model.take(1, now=9) == 13.5  # begins after
        assert (model.total_mib(now=9.9), model.total_mib(now=10)) == (1000, 500)
        assert [model.take(1, now=10) is not None for _ in range(2)] == [True, False]

    @given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.01, 2)), max_size=60), st.integers(1, 4))
    def test_no_more_than_the_slots_run_at_once(self, rows: list[tuple[float, float]], slots: int) -> None:
        model, now, spans = engine(slots, None), 0.0, []
        for gap_s, service_s in rows:
            now += gap_s
            if (ends := model.take(service_s, now=now)) is not None:
                spans.append((ends - service_s, ends))
        assert all(sum(a < middle < b for a, b in spans) <= slots for middle in (sum(each) / 2 for each in spans))
        assert model.in_flight(now=now) <= 8

    def test_its_page_is_what_the_product_reads(self) -> None:
        model = engine()
        model.take(5, now=0)
        found = read(Source.DCGM, page(model, 9001, now=1), None, now=1)
        assert isinstance(found, Reading)
        assert found.samples[OWN].memory == pytest.approx(0.3)


class TestWork:
    def test_equal_seeds_give_equal_work(self) -> None:
        case = SCENARIO.cases[0]
        assert work(SCENARIO, case, 7) == work(SCENARIO, case, 7) != work(SCENARIO, case, 8)

    def test_poisson_arrivals_come_at_their_rate(self) -> None:
        at_s = poisson(200, 100, _numbers())
        assert len(at_s) == pytest.approx(20_000, rel=0.05)
        assert at_s == sorted(at_s)
        assert 0 < at_s[0] < at_s[-1] < 100

    def test_service_times_have_the_mean_and_the_spread(self) -> None:
        found = services(SCENARIO.service, 50_000, _numbers())
        assert sum(found) / len(found) == pytest.approx(0.1, rel=0.02)
        logs = [math.log(each) for each in found]
        middle = sum(logs) / len(logs)
        assert math.sqrt(sum((each - middle) ** 2 for each in logs) / len(logs)) == pytest.approx(0.5, rel=0.02)

    @given(st.lists(st.floats(0.01, 5), min_size=30, max_size=80), st.integers(1, 10_000))
    def test_a_trace_keeps_its_bursts_at_our_rate(self, gaps: list[float], seed: int) -> None:
        arrivals = [sum(gaps[:index]) for index in range(len(gaps))]
        at_s = rescaled(arrivals, 20, 10, _numbers(seed))
        assert len(at_s) == 20
        assert at_s == sorted(at_s)
        assert at_s[0] == 0
        assert at_s[-1] <= 10

    def test_a_trace_that_is_too_short(self) -> None:
        with pytest.raises(CannotMeasure, match="5 arrivals, 21 are needed"):
            rescaled([1, 2, 3, 4, 5], 20, 10, _numbers())

    def test_traces_come_from_the_folder_of_data(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "traces").mkdir()
        with gzip.open(tmp_path / "traces" / "t.csv.gz", "wt") as file:
            file.write("arrival_s,client\n" + "".join(f"{index / 3},1\n" for index in range(500)))
        monkeypatch.setenv("EXTPROC_DATA", str(tmp_path))
        short = msgspec.structs.replace(SCENARIO, seconds=2.0)
        bursts = msgspec.structs.replace(SCENARIO.cases[0], arrivals="t.csv.gz")
        assert len(work(short, bursts, 1).at_s) == 336
        with pytest.raises(CannotMeasure, match="EXTPROC_DATA"):
            work(short, msgspec.structs.replace(bursts, arrivals="missing.csv"), 1)


def _numbers(seed: int = 5):  # type: ignore[no-untyped-def]
    import random

    return random.Random(seed)


class TestScenario:
    def test_the_committed_one_asks_for_what_was_promised(self) -> None:
        assert SCENARIO.rate == pytest.approx(168)
        assert (SCENARIO.endpoints, SCENARIO.slots, SCENARIO.seconds, SCENARIO.runs) == (3, 8, 180, 5)
        assert (SCENARIO.service.mean_s, SCENARIO.service.sigma) == (0.1, 0.5)
        assert (SCENARIO.degraded.slower, SCENARIO.degraded.memory) == (3, 0.5)
        degraded = [(each.arrivals, each.degraded) for each in SCENARIO.cases]
        assert ("poisson", None) in degraded
        assert len({case.seed for case in SCENARIO.cases}) == len(SCENARIO.cases)
        assert len({which for _, which in degraded}) == 3

    @pytest.mark.parametrize("text", ["", "seconds: 1", "{", "- a"])
    def test_a_file_that_is_none(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "s.yaml").write_text(text)
        with pytest.raises(CannotMeasure, match=r"s\.yaml"):
            scenario.load(tmp_path / "s.yaml")

    def test_an_unknown_key(self, tmp_path: Path) -> None:
        (tmp_path / "s.yaml").write_text(scenario.FILE.read_text() + "\nsecond: 1\n")
        with pytest.raises(CannotMeasure, match="second"):
            scenario.load(tmp_path / "s.yaml")


def made(latencies_ms: dict[str, float], overflow: dict[str, int], *, degraded: bool = True) -> Run:
    """A run of 100 s, ten requests a second; engines in turn, the third gets nothing after second 60."""
    at_s = [index / 10 for index in range(1000)]
    engines = [11 if at >= 60 and index % 3 == 0 else 11 + index % 3 for index, at in enumerate(at_s)]
    engines = [11 if at >= 60 and port == 13 else port for at, port in zip(at_s, engines, strict=True)]
    seen = {}
    for name in NAMES:
        status = [200] * 1000
        status[600 : 600 + overflow.get(name, 0)] = [OVERFLOW] * overflow.get(name, 0)
        latency = [latencies_ms[name] / 1000] * 1000
        seen[name] = Seen(name, [0.001] * 1000, latency, status, list(engines))
    return Run(
        case="made",
        seed=1,
        half_s=50.0,
        work=Work(at_s, [0.1] * 1000),
        seen=seen,
        degraded=dict.fromkeys(NAMES, 13) if degraded else {},
        weights=[Weights(40, {11: 1, 12: 1, 13: 1}), Weights(55.5, {11: 5, 12: 5, 13: 1})],
        pushes=2,
        cpu={"machine": 0.3, "client": 0.1},
    )


GOOD_MS = {ROUND_ROBIN: 1000.0, ROUND_ROBIN_AGAIN: 1050.0, LEAST_REQUEST: 700.0, OURS: 600.0}
GOOD_OVERFLOW = {ROUND_ROBIN: 60, ROUND_ROBIN_AGAIN: 60, LEAST_REQUEST: 9, OURS: 5}


class TestFigures:
    def test_of_the_second_half_alone(self) -> None:
        found = figures(made(GOOD_MS, GOOD_OVERFLOW), OURS)
        assert (found.requests, found.overflow, found.lost) == (500, 5, 0)
        assert found.p50_ms == found.p99_ms == pytest.approx(600)
        assert found.overflow_percent == 1

    def test_when_the_degraded_one_got_less(self) -> None:
        run = made(GOOD_MS, GOOD_OVERFLOW)
        assert reacted(run, run.seen[OURS], 13, 3) == 12
        assert reacted(run, run.seen[OURS], 11, 3) is None
        assert turned(run.weights, 13, 50) == 5.5
        assert turned(run.weights, 11, 50) is None
        assert figures(run, ROUND_ROBIN).react_weight_s is None

    def test_an_answer_that_never_came_is_lost(self) -> None:
        run = made(GOOD_MS, GOOD_OVERFLOW)
        run.seen[OURS].status[700:703] = [0, 500, 404]
        assert figures(run, OURS).lost == 3


BOUNDS = [
    ("all_hold", GOOD_MS, GOOD_OVERFLOW, []),
    ("slower_than_it_should", {**GOOD_MS, OURS: 670.0}, GOOD_OVERFLOW, ["P99, ours / round robin"]),
    ("slower_than_least_request", {**GOOD_MS, LEAST_REQUEST: 590.0}, GOOD_OVERFLOW, ["P99, ours / least request"]),
    ("scenario_too_easy", GOOD_MS, {**GOOD_OVERFLOW, ROUND_ROBIN: 49}, ["overflow of round robin, %"]),
    (
        "overflows",
        GOOD_MS,
        {**GOOD_OVERFLOW, LEAST_REQUEST: 30, OURS: 9},
        ["overflow of ours, %"],
    ),
    ("overflows_as_before", GOOD_MS, {**GOOD_OVERFLOW, OURS: 7}, ["overflow, ours / least request (sums)"]),
    ("against_nothing", GOOD_MS, {**GOOD_OVERFLOW, LEAST_REQUEST: 0}, ["overflow, ours / least request (sums)"]),
]


@pytest.mark.parametrize(("ms", "overflow", "short"), [each[1:] for each in BOUNDS], ids=[b[0] for b in BOUNDS])
def test_bounds(ms: dict[str, float], overflow: dict[str, int], short: list[str]) -> None:
    runs = [made(ms, overflow)] * 3
    assert [row.what for row in rows(runs) if not row.holds] == short
    assert report.good(runs) == (not short)
    assert ("FALLS SHORT" in report.text(runs)) == bool(short)


def test_with_all_equal_ours_has_to_stay_within_the_noise() -> None:
    def held(ours_ms: float) -> list[Row]:
        return rows([made({**GOOD_MS, LEAST_REQUEST: 1000, OURS: ours_ms}, {}, degraded=False)])

    assert all(row.holds for row in held(1040))
    assert [row.holds for row in held(1060)] == [True, False, False]


def test_a_busy_machine_is_told() -> None:
    calm = made(GOOD_MS, GOOD_OVERFLOW)
    assert "TOO BUSY" not in report.text([calm])
    assert "TOO BUSY" in report.text([msgspec.structs.replace(calm, cpu={"machine": 0.95, "client": 0.1})])
    calm.seen[OURS].lag_s[:] = [0.1] * 1000
    assert "TOO BUSY" in report.text([calm])


def test_the_tree_is_json() -> None:
    tree = report.tree([made(GOOD_MS, GOOD_OVERFLOW)])
    assert json.loads(json.dumps(tree))["good"]
    assert tree["runs"][0]["variants"][OURS]["overflow"] == 5


def test_the_picture_is_well_formed() -> None:
    tree = xml.fromstring(svg(made(GOOD_MS, GOOD_OVERFLOW)))
    lines = tree.findall(".//{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 9
    points = [float(part) for line in lines for part in line.attrib["points"].replace(",", " ").split()]
    assert all(0 <= each <= 900 for each in points)


def test_runs_of_one_variant_each_are_one() -> None:
    whole = made(GOOD_MS, GOOD_OVERFLOW)
    parts = [
        msgspec.structs.replace(
            whole,
            seen={name: whole.seen[name]},
            degraded={name: 13},
            weights=whole.weights if name == OURS else [],
            pushes=2 if name == OURS else 0,
        )
        for name in NAMES
    ]
    assert command.together(parts) == whole


CLUSTERS = """\
rr::127.0.0.1:9001::weight::1
ours::observability_name::ours
ours::127.0.0.1:9001::weight::300
ours::127.0.0.1:9001::health_flags::healthy
ours::127.0.0.1:9002::weight::1
ours::127.0.0.1:9002::health_flags::/failed_eds_health
"""


def test_weights_as_envoy_tells_them() -> None:
    assert weights(CLUSTERS, "ours") == {9001: 300, 9002: 0}
    assert weights("", "ours") == {}


def test_the_sidecars_config_has_one_pool() -> None:
    (pool,) = sidecar_config(SCENARIO.ours, (1, 2, 3))["pools"]  # type: ignore[misc]
    assert len(pool["endpoints"]) == 3
    assert pool["max_acceptable_p99_ms"] == 700


@pytest.mark.parametrize("wrong", [["--scenario", "/nowhere.yaml"], ["--case", "none such"]])
def test_a_mistake_is_one_line(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(wrong) == 1
    told = capsys.readouterr().err
    assert told.startswith("bench.weights: ")
    assert told.count("\n") == 1


def test_a_missing_trace_is_told_at_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXTPROC_DATA", "/nowhere")
    assert command.main(["--case", "poisson", "--case", "bursts"]) == 1
    assert "EXTPROC_DATA" in capsys.readouterr().err


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short enough for socket paths, unlike tmp_path."""
    with tempfile.TemporaryDirectory(prefix="bw-") as name:
        yield Path(name)


@pytest.mark.envoy
def test_a_short_run_on_the_real_envoy(folder: Path) -> None:
    """Every variant answers all, round robin in turn, and Envoy follows the weights of ours."""
    ours = msgspec.structs.replace(SCENARIO.ours, interval_s=1.0)
    short = msgspec.structs.replace(SCENARIO, seconds=10.0, ours=ours)
    case = SCENARIO.cases[0]
    found = run(short, case, seed=4, names=NAMES, folder=folder / "1")
    count = len(found.work.at_s)
    for name in NAMES:
        seen = found.seen[name]
        assert len(seen.status) == count > 1000
        assert set(seen.status) <= {200, OVERFLOW}
        assert all(latency > 0 for latency in seen.latency_s)
        assert len(set(seen.engine)) == 3
    in_turn = found.seen[ROUND_ROBIN].engine
    assert (
        max(in_turn.count(port) for port in set(in_turn)) - min(in_turn.count(port) for port in set(in_turn)) <= 1
    )
    assert all(sum(each.by_port.values()) in (3, 1000) for each in found.weights)
    last = found.weights[-1].by_port
    assert last[found.degraded[OURS]] == min(last.values()) < 333
    assert found.pushes >= 2
    assert figures(found, ROUND_ROBIN).requests == figures(found, OURS).requests > 500
    assert report.text([found])

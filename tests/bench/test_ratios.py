"""What is read off the benchmark's table: ratios, verdicts, the soak's, and the comparison with a baseline."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import baseline, ratios, report, soak
from bench.compare import RATE, Case, Measured, Round
from bench.load import Load
from bench.ratios import Answer, Limit, answers
from bench.variants import NATIVE, NONE, OURS_FAST, OURS_TWO

CPU = f"CPU: {OURS_FAST} / {NATIVE}"


def one_round(
    sidecar_us: float | None, *, errors: int = 0, rps: float = 10, busiest_us: float | None = None
) -> Round:
    rss = None if sidecar_us is None else 50.0
    return Round(Load(10, errors, 10 / rps, 1.0, 2.0), errors, sidecar_us, busiest_us or sidecar_us, 100.0, rss)


def measured(ours: list[float], native: list[float], *, errors: int = 0, connections: int = 1) -> Measured:
    return Measured(
        {
            Case(NONE, "2 KB", connections): [one_round(None) for _ in ours],
            Case(NATIVE, "2 KB", connections): [one_round(us) for us in native],
            Case(OURS_FAST, "2 KB", connections): [one_round(us, errors=errors) for us in ours],
        }
    )


def by_name(found: Measured) -> dict[str, Answer]:
    return {each.what: each for each in answers(found)}


def test_two_workers_are_bounded_by_their_busiest_process() -> None:
    """Also by the control process."""
    found = answers(
        Measured(
            {
                Case(OURS_FAST, "2 KB", 16): [one_round(300.0)],
                Case(OURS_TWO, "2 KB", 16): [one_round(450.0, busiest_us=150.0)],
            }
        )
    )
    (answer,) = (each for each in found if each.what.startswith("requests/s with a core"))
    assert answer.median == 2.0 and answer.limit is not None and answer.limit.met(answer.median)


def test_ratios_are_taken_round_by_round() -> None:
    ratio = by_name(measured([120, 300, 130], [100, 200, 100]))[CPU]
    assert (ratio.median, ratio.least, ratio.most) == (1.3, 1.2, 1.5)


def test_what_was_not_measured_is_not_answered() -> None:
    assert list(by_name(measured([120], [100]))) == [CPU, f"p50: {OURS_FAST} / {NATIVE}"]
    assert list(by_name(measured([120], [100], connections=16))) == [
        CPU,
        f"requests/s one core could do: {OURS_FAST}",
        f"p99 added, ms, flat out: {OURS_FAST} - {NONE}",
    ]


def test_what_is_added_at_the_days_rate_has_a_target() -> None:
    paced = measured([120], [100], connections=16)
    for name, p99_ms in ((NONE, 3.0), (OURS_FAST, 8.5)):
        load = Load(10, 0, 1.0, 1.0, p99_ms)
        paced.rounds[Case(name, "2 KB", 16, RATE)] = [Round(load, 0, None, None, 100.0, None)]
    found = by_name(paced)[f"p99 added, ms, at 2,778/s: {OURS_FAST} - {NONE}"]
    assert found.median == 5.5 and found.limit == Limit(5) and not found.limit.met(found.median)
    assert "2 KB, 2,778/s" in report.text(report.Results(paced))


def test_a_core_does_as_many_as_its_cpu_allows() -> None:
    core = by_name(measured([250], [100], connections=16))[f"requests/s one core could do: {OURS_FAST}"]
    assert core.median == 4000
    assert core.limit == Limit(2778, least=True)
    assert core.limit.met(2778) and not core.limit.met(2777)


def test_two_workers_are_compared_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    two = measured([100], [100], connections=16)
    two.rounds[Case(OURS_TWO, "2 KB", 16)] = [one_round(120, rps=18)]
    monkeypatch.setattr(ratios, "cores", lambda: 2)
    monkeypatch.setattr(report, "cores", lambda: 2)
    assert "requests/s: " not in report.text(report.Results(two))
    assert "on 2 cores" in report.text(report.Results(two))
    assert "on 2 cores" not in report.text(report.Results(measured([100], [100])))
    monkeypatch.setattr(ratios, "cores", lambda: 8)
    monkeypatch.setattr(report, "cores", lambda: 8)
    assert ">= 1.7 met" in report.text(report.Results(two))


def test_the_report_shows_targets_and_errors() -> None:
    good = report.Results(measured([250], [100]))
    bad = report.Results(measured([270], [100], errors=2))
    assert good.good and "<= 2.6 met, aim 2.2" in report.text(good)
    assert not bad.good and "<= 2.6 MISSED" in report.text(bad)
    tree = json.loads(json.dumps(report.tree(bad)))
    assert tree["cases"][2]["rounds"][0]["errors"] == 2
    assert tree["ratios"][0]["median"] == 2.7


def grown(*rss_mb: float, files: tuple[int, int] = (20, 20)) -> soak.Grown:
    return soak.Grown(rss_mb, files)


def test_flat_is_3_percent_after_the_first_tenth() -> None:
    steep = grown(*(50.0 + step for step in range(soak.SAMPLES)))
    flat = grown(10.0, *[60.0] * 18, 61.5)
    assert (steep.at(10), steep.at(50), steep.at(100)) == (51.0, 59.0, 69.0)
    assert not steep.good and flat.good
    assert grown(*[60.0] * 20, files=(20, 19)).good
    assert not grown(*[60.0] * 20, files=(20, 21)).good


def test_every_process_of_a_soak_has_to_be_good() -> None:
    flat, steep = grown(*[60.0] * 20), grown(*(50.0 + step for step in range(soak.SAMPLES)))
    good = soak.Soak(OURS_TWO, 200_000, 0, {"control": flat, "worker 1": flat}, (0, 0))
    bad = soak.Soak(OURS_TWO, 200_000, 0, {"control": flat, "worker 1": steep}, (0, 0))
    left = soak.Soak(OURS_FAST, 200_000, 0, {"sidecar": flat}, (0, 1))
    assert (good.good, bad.good, left.good) == (True, False, False)
    assert bad.slope_mb("worker 1") == pytest.approx(10.0)
    results = report.Results(Measured(), soaks=(good, bad))
    assert not results.good
    assert "worker 1" in report.text(results) and "NOT good" in report.text(results)
    assert json.loads(json.dumps(report.tree(results)))["soaks"][1]["good"] is False


def test_open_streams_are_read_off_the_metrics() -> None:
    assert soak.open_streams("# TYPE llm_streams_open gauge\nllm_streams_open 3.0\n") == 3


def test_a_ratio_above_the_baseline_and_its_noise_is_told(tmp_path: Path) -> None:
    file = tmp_path / "baseline.json"
    baseline.write(answers(measured([200, 220, 210], [100, 100, 100])), 3, file)
    known = baseline.read(file)
    assert known[(CPU, "2 KB", 1)] == baseline.Known(2.1, 0.21)
    assert "none of 2 ratios" in baseline.told(answers(measured([230], [100])), known)
    assert "WORSE than the baseline: CPU" in baseline.told(answers(measured([232], [100])), known)
    assert baseline.told(answers(measured([232], [100])), baseline.read(tmp_path / "none")) == (
        "Baseline: none of 0 ratios is worse by more than its noise"
    )


def test_the_noise_of_a_baseline_is_its_spread() -> None:
    (ratio, *_) = baseline.tree(answers(measured([100, 200, 300], [100, 100, 100])), 3)["ratios"]
    assert (ratio["median"], ratio["min"], ratio["max"], ratio["noise"]) == (2.0, 1.0, 3.0, 1.0)


def test_the_baseline_in_the_tree_is_of_ratios_that_are_still_asked_for() -> None:
    asked = {each.what for each in ratios.QUESTIONS if each.relative}
    assert {what for what, _, _ in baseline.read()} == asked

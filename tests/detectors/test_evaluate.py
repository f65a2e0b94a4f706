"""Verdicts: what trips, what warns, what is unknown; and how often chance alone trips anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from extproc.detectors.evaluate import evaluate, judged
from extproc.detectors.views import Reference, View
from extproc.model.drift import Drift, DriftKey, Verdict
from extproc.settings import load

CONFIG = load(b"{}").drift
KEY = DriftKey("chat", "default@1", "normal")
RANDOM = np.random.default_rng(29)


def lognormal(count: int, factor: float = 1.0) -> tuple[float, ...]:
    """Around 0.3 s, as answers of a small model are."""
    return tuple(np.sort(RANDOM.lognormal(-1.2, 0.5, count) * factor))


BASE = lognormal(4096)


def look(
    live: Mapping[str, Sequence[float]],
    base: Mapping[str, tuple[float, ...]] | None = None,
    *,
    before: Drift | None = None,
    warned: bool = False,
    keys: int = 1,
) -> Verdict:
    views = [View(KEY, {name: [(len(values), values)] for name, values in live.items()}, warned)]
    views += [View(DriftKey("chat", f"other@{number}", ""), {}) for number in range(keys - 1)]
    reference = {} if base is None else {KEY: Reference("default@0", base)}
    return next(evaluate(views, reference, {} if before is None else {KEY: before}, CONFIG, seed=1))


def test_without_a_baseline_it_is_unknown_never_fine() -> None:
    verdict = look({"512": BASE})
    assert (verdict.state, verdict.reason, verdict.d) == (Drift.UNKNOWN, "no_baseline", None)


@pytest.mark.parametrize("count", [0, 3, 29])
def test_few_samples_are_unknown(count: int) -> None:
    verdict = look({"512": lognormal(count)}, {"512": BASE})
    assert (verdict.state, verdict.reason) == (Drift.UNKNOWN, "few_samples")


def test_the_same_is_fine_and_says_against_what() -> None:
    verdict = look({"512": lognormal(3000)}, {"512": BASE})
    assert (verdict.state, verdict.baseline_set, verdict.live, verdict.baseline) == (
        Drift.FINE,
        "default@0",
        3000,
        4096,
    )


def test_thirty_percent_slower_is_drift() -> None:
    verdict = look({"512": lognormal(3000, 1.3)}, {"512": BASE})
    assert verdict.state is Drift.DRIFT and verdict.d is not None and verdict.d > 0.12
    assert verdict.p is not None and verdict.p < 1e-6 and verdict.p95_delta_s is not None


def test_faster_is_not_drift() -> None:
    assert look({"512": lognormal(3000, 0.5)}, {"512": BASE}).state is Drift.FINE


def test_a_moved_shape_whose_tail_hardly_rose_is_a_warning() -> None:
    fast = tuple(value / 10 for value in BASE)
    assert look({"512": tuple(value / 10 for value in lognormal(3000, 1.3))}, {"512": fast}).state is Drift.WARNING


def test_the_quick_look_warns_by_itself() -> None:
    assert look({"512": lognormal(3000)}, {"512": BASE}, warned=True).reason == "quick_look"


def test_the_slowest_few_alone_are_a_warning() -> None:
    """Every thirtieth answer takes three times as long: no P95 rises, no distance is large."""
    live = np.array(lognormal(3000))
    live[2900:] *= 3
    verdict = look({"512": tuple(live)}, {"512": BASE})
    assert (verdict.state, verdict.reason) == (Drift.WARNING, "tail")
    assert verdict.tail_share is not None and verdict.tail_share > 0.02
    assert verdict.d is not None and verdict.d < 0.12


def test_longer_prompts_are_no_drift() -> None:
    base = {"512": BASE, "8192": lognormal(4096, 6)}
    live = {"512": lognormal(200), "8192": lognormal(2800, 6)}
    assert look(live, base).state is Drift.FINE


def test_it_ends_below_three_quarters_and_does_not_flicker() -> None:
    def at(d: float, rise_ms: float, before: Drift | None) -> Drift:
        return judged(d, 1e-9, rise_ms / 1000, CONFIG, before=before, warning="")[0]

    assert at(0.13, 86, None) is Drift.DRIFT
    assert at(0.11, 86, None) is Drift.FINE
    assert at(0.11, 70, Drift.DRIFT) is Drift.DRIFT
    assert at(0.11, 60, Drift.DRIFT) is Drift.WARNING
    assert at(0.08, 70, Drift.DRIFT) is Drift.FINE


def test_more_keys_need_more_evidence() -> None:
    live = {"512": lognormal(300, 1.25)}
    alone, among = look(live, {"512": BASE}), look(live, {"512": BASE}, keys=50)
    assert alone.p is not None and among.p == pytest.approx(min(1.0, alone.p * 50))


@pytest.mark.parametrize("size", [30, 100_000])
def test_chance_alone_trips_nothing_in_a_thousand_windows(size: int) -> None:
    """The stated rate is one false alarm in a hundred days of 8,640 looks; a thousand looks at a time."""
    window = min(size, 4096)  # a window keeps so many of what it saw
    tripped = 0
    for _ in range(1000):
        verdict = look({"512": lognormal(window)}, {"512": BASE})
        tripped += verdict.state in (Drift.DRIFT, Drift.WARNING)
    assert tripped == 0


def test_one_false_alarm_in_a_hundred_days_at_most() -> None:
    """With D and P95 out of the way: p alone, over as many looks as a day has, on windows that do not overlap."""
    config = CONFIG.model_copy(update={"d": 1e-9, "p95_rise_ms": 1e-9})
    alarms = 0
    for _ in range(int(86_400 / config.interval_s)):
        view = View(KEY, {"512": [(100, lognormal(100))]})
        verdict = next(evaluate([view], {KEY: Reference("s", {"512": BASE})}, {}, config, seed=1))
        alarms += verdict.state is Drift.DRIFT
    assert alarms == 0

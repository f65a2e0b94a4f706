"""Output lengths, learnt from answers of which some were cut."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.errors import ConfigError
from extproc.lengths import Answer, moved, p95, target, worth_telling
from extproc.settings import load

CONFIG = load(b"{}").lengths


def ended(*tokens: int) -> list[Answer]:
    return [Answer(each, False) for each in tokens]


def cut(*tokens: int) -> list[Answer]:
    return [Answer(each, True) for each in tokens]


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        ([], None),
        (ended(7), (7, True)),
        (ended(*range(1, 101)), (95, True)),
        (ended(*[10] * 94, *[50] * 6), (50, True)),
        (ended(*[10] * 95, *[50] * 5), (10, True)),
        (cut(20), (20, False)),
        (cut(*[20] * 100), (20, False)),
        ([*ended(*[10] * 90), *cut(*[20] * 10)], (20, False)),
        ([*ended(*[10] * 96), *cut(*[20] * 4)], (10, True)),
        # Cut at 5 by its client: it could have been of any length above.
        ([*cut(*[5] * 100), *ended(*[10] * 95), *ended(*[50] * 5)], (10, True)),
        (ended(0, 0, 0), (0, True)),
    ],
)
def test_the_p95(answers: list[Answer], found: tuple[int, bool] | None) -> None:
    assert p95(answers) == found


@pytest.mark.parametrize(
    ("answers", "current", "wanted"),
    [
        (ended(100), 500, 120),
        (ended(0), 500, 1),
        (ended(10**9), 500, CONFIG.most),
        ([], 500, 500),
        (cut(*[100] * 50), 100, 120),  # cut at the limit: longer by the headroom, not confirmed
        (cut(*[100] * 50), 500, 500),  # all left early: nothing says that less is enough
        ([*ended(*[100] * 90), *cut(*[20] * 910)], 500, 120),
        ([*ended(*[100] * 90), *cut(*[110] * 10)], 500, 500),
    ],
)
def test_the_target_has_headroom_and_bounds(answers: list[Answer], current: float, wanted: float) -> None:
    assert target(answers, current, CONFIG) == wanted


@pytest.mark.parametrize(("wanted", "next_one"), [(100, 100), (110, 110), (400, 125), (10, 80)])
def test_a_step_is_bounded(wanted: float, next_one: float) -> None:
    assert moved(100.0, wanted, CONFIG) == next_one


@pytest.mark.parametrize(("current", "worth"), [(100, False), (105, False), (105.1, True), (94.9, True)])
def test_noise_is_not_told(current: float, worth: bool) -> None:
    assert worth_telling(100, current, CONFIG) is worth


def settled(draw: object, true_p95: float, *, start: float, answers: int = 2000) -> None:
    """Live: each answer is cut where the estimate of its moment says, ten answers a step."""
    window: list[Answer] = []
    estimate = start
    for number in range(answers):
        length = int(draw())  # type: ignore[operator]
        limit = round(estimate)
        window = [*window, Answer(min(length, limit), length > limit)][-CONFIG.window :]
        if number % 10 == 9 and len(window) >= CONFIG.min_samples:
            estimate = moved(estimate, target(window, estimate, CONFIG), CONFIG)
    assert estimate == pytest.approx(true_p95 * (1 + CONFIG.headroom), rel=0.15)


@pytest.mark.parametrize("start", [20.0, 120.0, 3000.0])
@pytest.mark.parametrize("shape", ["lognormal", "two kinds", "heavy tail", "runaways"])
def test_it_arrives_within_two_thousand_answers_wherever_it_starts(shape: str, start: float) -> None:
    source = np.random.default_rng(9)
    draws = {
        "lognormal": lambda: source.lognormal(5.0, 0.4),
        "two kinds": lambda: source.normal(60, 8) if source.uniform() < 0.7 else source.normal(400, 30),
        "heavy tail": lambda: 80 * (1 + source.pareto(2.5)),
        "runaways": lambda: 30_000 if source.uniform() < 0.02 else source.lognormal(4.5, 0.3),
    }
    truth = float(np.quantile([draws[shape]() for _ in range(40_000)], 0.95))
    settled(draws[shape], truth, start=start)


def test_it_never_ratchets_down_by_its_own_cuts() -> None:
    """A naive P95 of what was cut would be the cap itself, and the next one lower still."""
    random.seed(2)
    settled(lambda: random.gauss(500, 40), 566.0, start=100.0)


@given(st.lists(st.builds(Answer, st.integers(0, 100_000), st.booleans()), min_size=1, max_size=200))
def test_the_estimate_is_one_of_the_lengths_and_a_cut_never_lowers_it(answers: list[Answer]) -> None:
    found = p95(answers)
    assert found is not None and found[0] in {each.tokens for each in answers}
    uncut = p95([Answer(each.tokens, False) for each in answers])
    assert uncut is not None and found[0] >= uncut[0]


def test_mistakes_in_the_config() -> None:
    with pytest.raises(ConfigError, match="at most window"):
        load("lengths: {window: 60, min_samples: 100}")

"""Readings become utilities, and old ones fade."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.scoring.terms import belief, free_memory, read, speed
from extproc.scoring.values import Freshness, Reading, ScoringRules, Term
from tests.scoring.pools import NOW, endpoint, inputs

RULES = ScoringRules()


@pytest.mark.parametrize(
    ("used", "free"),
    [(0, 1), (0.25, 0.75), (1, 0), (1.5, 0), (nan, None), (inf, None), (-inf, None), (-0.1, None), (-0.0, 1)],
)
def test_free_memory(used: float, free: float | None) -> None:
    assert free_memory(used) == free


@pytest.mark.parametrize(
    ("p99_s", "most_s", "utility"),
    [
        (0, 2, 1),
        (0.5, 2, 0.75),
        (2, 2, 0),
        (9, 2, 0),
        (inf, 2, 0),
        (nan, 2, None),
        (-1, 2, None),
        (-inf, 2, None),
        (1, 0, None),
        (1, -1, None),
        (1, nan, None),
        (1, inf, None),
        (5e-324, 1e308, 1),
    ],
)
def test_speed(p99_s: float, most_s: float, utility: float | None) -> None:
    assert speed(p99_s, most_s) == utility


@pytest.mark.parametrize(
    ("age_s", "believed"),
    [(0, 1), (5, 1), (15, 1), (15.01, 0.999), (20, 2 / 3), (22.5, 0.5), (25, 1 / 3), (30, 0), (1e9, 0)],
)
def test_belief(age_s: float, believed: float) -> None:
    assert belief(age_s, RULES) == pytest.approx(believed, abs=1e-3)


def test_belief_may_end_at_once() -> None:
    rules = ScoringRules(stale_after_intervals=2, neutral_after_intervals=2)
    assert [belief(age_s, rules) for age_s in (0, 10, 10.1)] == [1, 1, 0]


def test_an_old_reading_moves_to_the_median_of_the_fresh_ones() -> None:
    pool = [endpoint("a", 0.2), endpoint("b", 0.5), endpoint("c", 0.6), endpoint("old", 0.0, age_s=22.5)]
    found = read(pool, Term.MEMORY, RULES, now=NOW)
    assert [each.utility for each in found] == [0.8, 0.5, 0.4, 0.75]
    assert [each.freshness for each in found] == [*[Freshness.FRESH] * 3, Freshness.FADING]
    assert found[3].age_s == 22.5


def test_a_reading_too_old_is_the_median() -> None:
    pool = [endpoint("a", 0.2), endpoint("b", 0.5), endpoint("c", 0.6), endpoint("old", 0.0, age_s=30)]
    last = read(pool, Term.MEMORY, RULES, now=NOW)[3]
    assert (last.utility, last.freshness, last.reading) == (0.5, Freshness.NEUTRAL, 0.0)


def test_without_a_fresh_one_it_moves_to_the_middle() -> None:
    assert [each.utility for each in read([endpoint("a", 0, age_s=60)], Term.MEMORY, RULES, now=NOW)] == [0.5]


def test_a_reading_from_the_future_is_fresh() -> None:
    (found,) = read([endpoint("a", 0.5, age_s=-3600)], Term.MEMORY, RULES, now=NOW)
    assert (found.freshness, found.age_s) == (Freshness.FRESH, 0)


@pytest.mark.parametrize("at", [nan, inf, -inf])
def test_a_reading_without_a_time_is_missing(at: float) -> None:
    pool = [endpoint("a")]
    pool[0] = type(pool[0])(key="a", healthy=True, memory=Reading(0.5, at), max_acceptable_p99_s=1)
    assert read(pool, Term.MEMORY, RULES, now=NOW)[0].freshness is Freshness.MISSING


@given(inputs(), st.sampled_from(Term))
def test_every_utility_is_a_fraction_or_missing(pool: list, term: Term) -> None:  # type: ignore[type-arg]
    for each in read(pool, term, RULES, now=NOW):
        assert (each.utility is None) == (each.freshness is Freshness.MISSING)
        assert each.utility is None or 0 <= each.utility <= 1

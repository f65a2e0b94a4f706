"""Terms become a score: bounded, monotone, and with a reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.scoring.score import score
from extproc.scoring.values import EndpointInput, ScoringRules, Term, WeightReason
from tests.scoring.pools import NOW, endpoint, inputs

RULES = ScoringRules()


def value(pool: list[EndpointInput], rules: ScoringRules = RULES) -> float:
    return score(pool, rules, now=NOW)[0].value


FORMULA = [
    ("both", 0.5, 0.25, 0.6 * 0.5 + 0.4 * 0.75),
    ("idle", 0.0, 0.0, 1.0),
    ("full_and_slow", 1.0, 2.0, 0.0),
    ("full", 1.0, 0.0, 0.4),
    ("slow", 0.0, 1.0, 0.6),
    ("no_memory", None, 0.25, 0.75),
    ("no_latency", 0.4, None, 0.6),
    ("endless", 0.4, float("inf"), 0.36),
]


@pytest.mark.parametrize(("memory", "p99_s", "wanted"), [case[1:] for case in FORMULA], ids=[c[0] for c in FORMULA])
def test_the_formula(memory: float | None, p99_s: float | None, wanted: float) -> None:
    assert value([endpoint("a", memory, p99_s)]) == pytest.approx(wanted)


def test_factors_are_relative() -> None:
    rules = ScoringRules(memory_weight=3, latency_weight=1)
    assert value([endpoint("a", 0.5, 0)], rules) == pytest.approx(0.625)


def test_a_factor_of_zero_leaves_a_term_out() -> None:
    rules = ScoringRules(memory_weight=0, latency_weight=1)
    assert value([endpoint("a", 1.0, 0.25)], rules) == 0.75
    (found,) = score([endpoint("a", 0.5, None)], rules, now=NOW)
    assert (found.reason, found.fresh) == (WeightReason.MEDIAN, False)


def test_of_whom_nothing_is_known_gets_the_median() -> None:
    pool = [endpoint("new"), endpoint("a", 0.1), endpoint("b", 0.3), endpoint("c", 0.8)]
    found = score(pool, RULES, now=NOW)[0]
    assert (found.value, found.reason, found.fresh) == (0.7, WeightReason.MEDIAN, False)


REASONS = [
    ("memory", [(0.9, 0.2), (0.1, 0.2)], WeightReason.MEMORY, Term.MEMORY),
    ("latency", [(0.3, 0.9), (0.3, 0.2)], WeightReason.LATENCY, Term.LATENCY),
    ("the_heavier", [(0.5, 0.6), (0.2, 0.2)], WeightReason.MEMORY, Term.MEMORY),
    ("the_further", [(0.3, 0.9), (0.2, 0.1)], WeightReason.LATENCY, Term.LATENCY),
    ("even", [(0.3, 0.4), (0.3, 0.4)], WeightReason.EVEN, None),
    ("missing", [(0.3, None), (0.9, 0.4)], WeightReason.MISSING, Term.MEMORY),
]


@pytest.mark.parametrize(("rows", "reason", "mover"), [case[1:] for case in REASONS], ids=[c[0] for c in REASONS])
def test_reasons(rows: list[tuple[float, float]], reason: WeightReason, mover: Term | None) -> None:
    pool = [endpoint(str(i), memory, p99_s) for i, (memory, p99_s) in enumerate(rows)]
    found = score(pool, RULES, now=NOW)[0]
    assert (found.reason, found.moved_by) == (reason, mover)


@pytest.mark.parametrize("age_s", [15.1, 29, 31, 9999])
def test_an_old_term_is_the_reason(age_s: float) -> None:
    pool = [endpoint("a", 0.5, 0.1, p99_age_s=age_s), endpoint("b", 0.5, 0.5)]
    found = score(pool, RULES, now=NOW)[0]
    assert (found.reason, found.fresh) == (WeightReason.STALE, True)


@given(inputs())
def test_scores_are_fractions_whatever_is_read(pool: list[EndpointInput]) -> None:
    assert all(0 <= each.value <= 1 for each in score(pool, RULES, now=NOW))


@given(st.floats(0, 2), st.floats(0, 2), st.floats(0, 2), st.floats(0, 1))
def test_more_memory_used_is_never_better(low: float, high: float, p99_s: float, other: float) -> None:
    low, high = sorted((low, high))
    rest = endpoint("b", other, 0.5)
    assert value([endpoint("a", high, p99_s), rest]) <= value([endpoint("a", low, p99_s), rest])


@given(st.floats(0, allow_nan=False), st.floats(0, allow_nan=False), st.floats(0, 2), st.floats(0, 1))
def test_a_longer_p99_is_never_better(low: float, high: float, memory: float, other: float) -> None:
    low, high = sorted((low, high))
    rest = endpoint("b", other, 0.5)
    assert value([endpoint("a", memory, high), rest]) <= value([endpoint("a", memory, low), rest])


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 40))
def test_monotone_at_any_age(low: float, high: float, age_s: float) -> None:
    low, high = sorted((low, high))
    rest = [endpoint("b", 0.3, 0.5), endpoint("c", 0.7, 0.5)]
    worse, better = (value([endpoint("a", each, 0.5, age_s=age_s, p99_age_s=0), *rest]) for each in (high, low))
    assert worse <= better + 1e-12

"""From terms to one score per endpoint: w = 0.6·(1 − mem) + 0.4·(1 − min(p99/max_acceptable, 1)) by default.

A row holds the terms of one endpoint in the order of `TERMS`, as do the factors and the pool's means.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from msgspec import Struct

from extproc.scoring.terms import read
from extproc.scoring.values import EndpointInput, Freshness, ScoringRules, Term, TermValue, WeightReason

TERMS = (Term.MEMORY, Term.LATENCY)

NOT_APART = 1e-9
"""A difference from the pool's mean that is none."""

Row = tuple[TermValue, ...]


class Score(Struct, frozen=True, gc=False):
    """`value` in [0, 1]; `reason` as if nothing else had a say in the weight; `fresh`: some term is."""

    value: float
    terms: Row
    reason: WeightReason
    moved_by: Term | None
    fresh: bool


def score(endpoints: Sequence[EndpointInput], rules: ScoringRules, *, now: float) -> list[Score]:
    """Scores of the endpoints of one pool, in their order.

    A missing term is left out and the rest renormalised; of whom nothing is known gets the pool's median.
    """
    factors = (rules.memory_weight, rules.latency_weight)
    columns = [read(endpoints, term, rules, now=now) for term in TERMS]
    means = [_mean(column) for column in columns]
    rows = list(zip(*columns, strict=True))
    values = [weighed(row, factors) for row in rows]
    known = [value for value in values if value is not None]
    middle = median(known) if known else 0.0
    return [
        Score(middle, row, WeightReason.MEDIAN, None, False)
        if value is None
        else _known(value, row, factors, means)
        for row, value in zip(rows, values, strict=True)
    ]


def weighed(row: Row, factors: Sequence[float]) -> float | None:
    """The weighted mean of the utilities there are; None where none counts."""
    above = below = 0.0
    for each, factor in zip(row, factors, strict=True):
        if each.utility is not None:
            above += factor * each.utility
            below += factor
    return min(1.0, above / below) if below else None


def _mean(column: Sequence[TermValue]) -> float:
    known = [each.utility for each in column if each.utility is not None]
    return sum(known) / len(known) if known else 0.0


def _known(value: float, row: Row, factors: Sequence[float], means: Sequence[float]) -> Score:
    """The term that moved it is the one whose part of the score is furthest from the pool's mean."""
    furthest, moved_by, fresh, old, missing = NOT_APART, None, False, False, False
    for each, factor, mean in zip(row, factors, means, strict=True):
        if not factor:
            continue
        if each.utility is None:
            missing = True
            continue
        if each.freshness is Freshness.FRESH:
            fresh = True
        else:
            old = True
        pull = abs(factor * (each.utility - mean))
        if pull > furthest:
            furthest, moved_by = pull, each.term
    return Score(value, row, _reason(moved_by, old=old, missing=missing), moved_by, fresh)


def _reason(moved_by: Term | None, *, old: bool, missing: bool) -> WeightReason:
    if old:
        return WeightReason.STALE
    if missing:
        return WeightReason.MISSING
    return WeightReason.EVEN if moved_by is None else _MOVED[moved_by]


_MOVED = {Term.MEMORY: WeightReason.MEMORY, Term.LATENCY: WeightReason.LATENCY}

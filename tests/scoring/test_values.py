"""What scoring takes and gives."""

from __future__ import annotations

from extproc.scoring.values import EndpointWeight, PoolWeights, ScoringRules, Term, WeightReason


def test_the_defaults_are_the_formula_as_specified() -> None:
    rules = ScoringRules()
    assert (rules.memory_weight, rules.latency_weight) == (0.6, 0.4)
    assert (rules.interval_s, rules.stale_after_intervals, rules.neutral_after_intervals) == (5, 3, 6)
    assert (rules.max_step, rules.min_change) == (0.25, 0.01)


def test_every_term_can_be_a_reason() -> None:
    assert {term.value for term in Term} < {reason.value for reason in WeightReason}


def weight(key: str, share: int, reason: WeightReason) -> EndpointWeight:
    return EndpointWeight(
        key=key, weight=share, draining=not share, score=None, terms=(), reason=reason, moved_by=None
    )


def test_what_is_carried_over_leaves_out_unhealthy_endpoints_alone() -> None:
    pool = PoolWeights(
        weights=(
            weight("served", 1000, WeightReason.MEMORY),
            weight("full", 0, WeightReason.MEMORY),
            weight("dead", 0, WeightReason.DRAINING),
        ),
        total=1000,
        saturated=False,
        changed=True,
    )
    assert pool.shares == {"served": 1000, "full": 0}

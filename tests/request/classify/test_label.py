"""A trusted caller's label names a scenario or a tier; whatever else it says is no opinion."""

from __future__ import annotations

import pytest

from extproc.model.names import Dialect, Tier
from extproc.model.values import Caller, Classification, InferenceRequest
from extproc.parameters import Scenario
from extproc.request.classify.label import Labels

SCENARIOS = {
    "general": Scenario(tier=Tier.NORMAL),
    "order_query": Scenario(tier=Tier.STRICT, length=120),
    "copywriting": Scenario(tier=Tier.CREATIVE),
}
REQUEST = InferenceRequest(Dialect.OPENAI_CHAT, model="m", text="", given={}, insertable=frozenset())


def caller(label: str | None) -> Caller:
    return Caller(
        trusted=label is not None,
        trust_reason="token",
        tenant="anonymous",
        label=label,
        request_class=None,
        overrides={},
    )


def judge(label: str | None, scenarios: dict[str, Scenario] = SCENARIOS) -> Classification | None:
    return Labels(scenarios, default_scenario="general")(REQUEST, caller(label))


@pytest.mark.parametrize(
    ("label", "tier", "scenario"),
    [
        ("order_query", Tier.STRICT, "order_query"),
        ("copywriting", Tier.CREATIVE, "copywriting"),
        ("ORDER_Query", Tier.STRICT, "order_query"),
        ("  order_query\t", Tier.STRICT, "order_query"),
        ("strict", Tier.STRICT, "general"),
        ("normal", Tier.NORMAL, "general"),
        (" Creative ", Tier.CREATIVE, "general"),
    ],
)
def test_known_labels(label: str, tier: Tier, scenario: str) -> None:
    verdict = judge(label)
    assert verdict is not None
    assert (verdict.tier, verdict.scenario, verdict.source, verdict.confidence) == (tier, scenario, "label", 1.0)


@pytest.mark.parametrize("label", [None, "", "   ", "order query", "stricter", "订单", "\ud800", "x" * 10_000])
def test_anything_else_is_no_opinion(label: str | None) -> None:
    assert judge(label) is None


def test_the_rule_is_the_configured_name_not_the_callers_spelling() -> None:
    verdict = judge(" ORDER_QUERY ")
    assert verdict is not None
    assert verdict.rule == "order_query"


def test_a_scenario_named_like_a_tier_wins() -> None:
    verdict = judge("strict", {"strict": Scenario(tier=Tier.CREATIVE)})
    assert verdict is not None
    assert (verdict.tier, verdict.scenario) == (Tier.CREATIVE, "strict")


def test_without_scenarios_tiers_still_work() -> None:
    verdict = judge("strict", {})
    assert verdict is not None
    assert verdict.tier is Tier.STRICT

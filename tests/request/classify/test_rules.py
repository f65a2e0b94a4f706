"""Rules: how they are compiled, asked, and asked again when the set gives up."""

from __future__ import annotations

import pytest
import re2

from extproc.errors import ConfigError
from extproc.model.names import Dialect, Tier
from extproc.model.values import Caller, Classification, InferenceRequest
from extproc.parameters import Rule, Scenario
from extproc.request.classify.rules import Rules

CALLER = Caller(
    trusted=False, trust_reason="none", tenant="anonymous", label=None, request_class=None, overrides={}
)
SCENARIOS = {
    "general": Scenario(tier=Tier.NORMAL),
    "order_query": Scenario(tier=Tier.STRICT),
    "returns": Scenario(tier=Tier.STRICT),
    "payment": Scenario(tier=Tier.STRICT),
    "legal": Scenario(tier=Tier.STRICT),
    "recommendation": Scenario(tier=Tier.CREATIVE),
    "copywriting": Scenario(tier=Tier.CREATIVE),
}


def request(text: str) -> InferenceRequest:
    return InferenceRequest(Dialect.OPENAI_CHAT, model="m", text=text, given={}, insertable=frozenset())


def build(*rules: Rule, **options: int) -> Rules:
    return Rules(rules, SCENARIOS, default_scenario="general", **options)


def rule(name: str, pattern: str, tier: Tier = Tier.STRICT, scenario: str | None = None) -> Rule:
    return Rule(name=name, pattern=pattern, tier=tier, scenario=scenario)


def named(verdict: Classification | None) -> str | None:
    return None if verdict is None else verdict.rule


def test_no_rules_no_opinion() -> None:
    assert build()(request("anything"), CALLER) is None


def test_a_match_is_a_certain_verdict() -> None:
    verdict = build(rule("orders", "order", scenario="order_query"))(request("my order"), CALLER)
    assert verdict == Classification(Tier.STRICT, "order_query", "rules", "orders", 1.0)


def test_a_rule_without_scenario_gives_the_default_one_and_its_own_tier() -> None:
    verdict = build(rule("phone", "[0-9]+"))(request("call 555"), CALLER)
    assert verdict == Classification(Tier.STRICT, "general", "rules", "phone", 1.0)


def test_the_first_rule_in_order_decides_wherever_it_matches() -> None:
    judge = build(rule("late", "zebra"), rule("early", "ape", Tier.CREATIVE), rule("any", "."))
    assert named(judge(request("ape, then zebra"), CALLER)) == "late"
    assert named(judge(request("ape"), CALLER)) == "early"
    assert named(judge(request("cat"), CALLER)) == "any"
    assert named(judge(request(""), CALLER)) is None


def test_a_pattern_that_matches_nothing_at_all_still_counts() -> None:
    assert named(build(rule("always", ""))(request(""), CALLER)) == "always"


def test_an_undefined_scenario_is_a_config_error_and_all_are_named() -> None:
    with pytest.raises(ConfigError) as caught:
        build(rule("a", "a", scenario="nope"), rule("b", "b"), rule("c", "c", scenario="gone"))
    assert [problem.path for problem in caught.value.problems] == [
        "classify.rules[0].scenario",
        "classify.rules[2].scenario",
    ]


@pytest.mark.parametrize(
    "text", ["\ud800 order", "\x00order\x00", "order\udfff", "\U0010ffff order", "订单\ud83dorder"]
)
def test_odd_text_is_read_all_the_same(text: str) -> None:
    assert named(build(rule("orders", "order"))(request(text), CALLER)) == "orders"


def test_context_of_a_pattern_sees_nul_and_newlines() -> None:
    judge = build(rule("digits", r"(?:^|[^0-9])[0-9]{3}(?:$|[^0-9])"))
    assert named(judge(request("\x00123\n"), CALLER)) == "digits"
    assert judge(request("1234"), CALLER) is None


# --- a set that gives up ---

THREE = (rule("first", "ape"), rule("second", "bee"), rule("third", "c[a-z]t"))


@pytest.mark.parametrize("text", ["a bee and an ape", "bee", "cat", "nothing", ""])
def test_a_set_without_memory_falls_back_to_the_same_verdicts(text: str) -> None:
    starved = build(*THREE, set_memory_bytes=1024)
    assert starved(request(text), CALLER) == build(*THREE)(request(text), CALLER)


class _Failing:
    def __init__(self, error: Exception | None) -> None:
        self.error = error

    def Match(self, text: bytes) -> None:
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("error", [None, MemoryError(), re2.error("out of memory")])
def test_a_failing_match_falls_back(error: Exception | None, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = build(*THREE)
    monkeypatch.setattr(judge, "_sets", (_Failing(error),))
    assert named(judge(request("cat, bee"), CALLER)) == "second"
    assert judge(request("nothing"), CALLER) is None

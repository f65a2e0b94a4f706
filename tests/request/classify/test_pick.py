"""The first opinion decides; one below the minimum confidence decides for the default tier."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from extproc.model.names import Dialect, Tier
from extproc.model.values import Caller, Classification, InferenceRequest
from extproc.request.classify.pick import classify
from extproc.snapshot import Classifier

REQUEST = InferenceRequest(Dialect.OPENAI_CHAT, model="m", text="hi", given={}, insertable=frozenset())
CALLER = Caller(
    trusted=False, trust_reason="none", tenant="anonymous", label=None, request_class=None, overrides={}
)


def says(tier: Tier, confidence: float, source: str) -> Classifier:
    verdict = Classification(tier, "some", source, "a_rule", confidence)
    return lambda request, caller: verdict


def silent(request: InferenceRequest, caller: Caller) -> None:
    return None


def broken(request: InferenceRequest, caller: Caller) -> None:
    raise AssertionError("was asked although the verdict had been reached")


def pick(*classifiers: Classifier) -> Classification:
    return classify(
        REQUEST,
        CALLER,
        classifiers,
        default_tier=Tier.NORMAL,
        default_scenario="general",
        min_confidence=0.8,
    )


NOBODY = Classification(Tier.NORMAL, "general", "default", "default", 0.0)


def test_nobody_asked() -> None:
    assert pick() == NOBODY


def test_nobody_knows() -> None:
    assert pick(silent, silent) == NOBODY


def test_the_first_opinion_wins_and_the_rest_are_not_asked() -> None:
    verdict = pick(silent, says(Tier.STRICT, 1.0, "rules"), broken)
    assert verdict == Classification(Tier.STRICT, "some", "rules", "a_rule", 1.0)


@pytest.mark.parametrize("confidence", [0.8, 0.81, 1.0])
def test_enough_confidence(confidence: float) -> None:
    assert pick(says(Tier.CREATIVE, confidence, "intent")).tier is Tier.CREATIVE


@pytest.mark.parametrize("confidence", [0.0, 0.5, math.nextafter(0.8, 0.0)])
def test_a_low_confidence_ends_the_search_with_the_default_tier(confidence: float) -> None:
    verdict = pick(says(Tier.STRICT, confidence, "intent"), broken)
    assert verdict == Classification(Tier.NORMAL, "general", "intent", "low_confidence", confidence)


def test_a_confidence_that_is_no_number_is_low() -> None:
    verdict = pick(says(Tier.STRICT, math.nan, "intent"))
    assert (verdict.tier, verdict.rule) == (Tier.NORMAL, "low_confidence")


def test_classifiers_may_come_from_any_iterable() -> None:
    def stream() -> Iterator[Classifier]:
        yield silent
        yield says(Tier.STRICT, 1.0, "rules")

    assert pick(*stream()).source == "rules"


@pytest.mark.parametrize(
    ("first", "second", "wins"),
    [
        # A strict rule is the last word, and so is a label.
        (says(Tier.STRICT, 1.0, "rules"), broken, "rules"),
        (says(Tier.CREATIVE, 1.0, "label"), broken, "label"),
        # Rule and model disagree: strict wins, where it is sure.
        (says(Tier.CREATIVE, 1.0, "rules"), says(Tier.STRICT, 0.9, "intent"), "intent"),
        (says(Tier.CREATIVE, 1.0, "rules"), says(Tier.STRICT, 0.7, "intent"), "rules"),
        (says(Tier.CREATIVE, 1.0, "rules"), says(Tier.NORMAL, 1.0, "intent"), "rules"),
        (says(Tier.CREATIVE, 1.0, "rules"), silent, "rules"),
        (says(Tier.NORMAL, 1.0, "rules"), says(Tier.STRICT, 0.9, "intent"), "intent"),
    ],
)
def test_who_wins(first: Classifier, second: Classifier, wins: str) -> None:
    assert pick(first, second).source == wins


def test_what_came_too_late_says_so() -> None:
    late = Classification(Tier.NORMAL, "general", "intent", "deadline", 0.0)
    assert pick(silent, lambda request, caller: late) == late

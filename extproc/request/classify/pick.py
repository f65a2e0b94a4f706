"""Which classifier's verdict counts: the first one that has an opinion, unless a warm rule meets a strict doubt."""

from __future__ import annotations

from collections.abc import Iterable

from extproc.model.names import LATE, LOW_CONFIDENCE, NO_OPINION, Tier
from extproc.model.values import Caller, Classification
from extproc.request.classify.label import SOURCE as LABEL
from extproc.snapshot import Classifier, HasText

SOURCE = "default"


def classify(
    request: HasText,
    caller: Caller,
    classifiers: Iterable[Classifier],
    *,
    default_tier: Tier,
    default_scenario: str,
    min_confidence: float,
) -> Classification:
    """The verdict a request is decided by. Classifiers stand in the order of their authority."""
    first = None
    for classifier in classifiers:
        verdict = classifier(request, caller)
        if verdict is None:
            continue
        # Two disagree: strict wins, where it is sure.
        if first is not None:
            if verdict.tier is Tier.STRICT and verdict.confidence >= min_confidence:
                return verdict
            continue
        first = verdict
        # A trusted label is the last word, and so is a strict verdict; a doubt ends the search as well.
        if not _may_be_overruled(verdict, min_confidence):
            break

    # Nobody knows: that is a verdict of its own, with no confidence in it.
    if first is None:
        return Classification(
            tier=default_tier, scenario=default_scenario, source=SOURCE, rule=NO_OPINION, confidence=0.0
        )

    # Unsure (a NaN is): the default, and no one of less authority is asked to overrule the doubt.
    if not first.confidence >= min_confidence:
        # What was past its deadline has said so itself.
        rule = first.rule if first.rule == LATE else LOW_CONFIDENCE
        return Classification(
            tier=default_tier,
            scenario=default_scenario,
            source=first.source,
            rule=rule,
            confidence=first.confidence,
        )

    return first


def _may_be_overruled(verdict: Classification, min_confidence: float) -> bool:
    return verdict.tier is not Tier.STRICT and verdict.source != LABEL and verdict.confidence >= min_confidence

"""Which classifier's verdict counts: the first one that has an opinion."""

from __future__ import annotations

from collections.abc import Iterable

from extproc.model.names import Tier
from extproc.model.values import Caller, Classification
from extproc.snapshot import Classifier, HasText

SOURCE = "default"
NO_OPINION = "default"
LOW_CONFIDENCE = "low_confidence"


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
    verdict = None
    for classifier in classifiers:
        verdict = classifier(request, caller)
        if verdict is not None:
            break

    # Nobody knows: that is a verdict of its own, with no confidence in it.
    if verdict is None:
        return Classification(
            tier=default_tier, scenario=default_scenario, source=SOURCE, rule=NO_OPINION, confidence=0.0
        )

    # Unsure (a NaN is): the default, and no one of less authority is asked to overrule the doubt.
    if not verdict.confidence >= min_confidence:
        return Classification(
            tier=default_tier,
            scenario=default_scenario,
            source=verdict.source,
            rule=LOW_CONFIDENCE,
            confidence=verdict.confidence,
        )

    return verdict

"""What the text is about, by the intent model: the classifier after label and rules.

Its work is bounded (features.MOST_CHARS), and the deadline is looked at all the same: a process that is denied the
processor answers late whatever it computes. The clock is the shell's: it hands one in, and nothing here knows
which. What becomes of texts it is unsure about is the shell's as well (`unsure`), and nothing unless a config
allows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import floor

from extproc.model.names import LATE, Tier
from extproc.model.values import Caller, Classification
from extproc.parameters import Scenario
from extproc.request.classify.weights import Reader, Weights
from extproc.snapshot import HasText

SOURCE = "intent"
STEPS = 100
"""Confidences are told in hundredths, rounded down: what follows from equal verdicts is remembered."""

Unsure = Callable[[str, Classification], None]


def no_time() -> float:
    return 0.0


def nobody(text: str, verdict: Classification) -> None:
    """Texts are not kept."""


class Intent:
    """A classifier over weights. A scenario has the tier the configuration gives it; one that the configuration
    does not know leaves the tier alone. `timer`: seconds of any clock. `unsure` is told each text and its likely
    verdict where the confidence is below `min_confidence`.
    """

    def __init__(
        self,
        weights: Weights,
        scenarios: Mapping[str, Scenario],
        *,
        default_tier: Tier,
        default_scenario: str,
        min_confidence: float = 0.0,
        deadline_s: float = float("inf"),
        timer: Callable[[], float] = no_time,
        unsure: Unsure = nobody,
    ) -> None:
        self._reader = reader = Reader(weights)
        self._default = default_tier, default_scenario
        self._min_confidence, self._deadline_s = min_confidence, deadline_s
        self._timer, self._unsure = timer, unsure
        self._means = [_meant(group.tier, group.scenario, scenarios, default_scenario) for group in reader.groups]

    def __call__(self, request: HasText, caller: Caller) -> Classification | None:
        """None for a text that says nothing. Past the deadline: the default tier, with no confidence."""
        begun = self._timer()
        verdict = self.likely(request.text)
        if self._timer() - begun > self._deadline_s:
            tier, scenario = self._default
            return Classification(tier, scenario, SOURCE, LATE, 0.0)
        if verdict is not None and verdict.confidence < self._min_confidence:
            self._unsure(request.text, verdict)
        return verdict

    def likely(self, text: str) -> Classification | None:
        """The most likely tier, in it the most likely scenario; the confidence is the tier's probability."""
        probabilities = self._reader.probabilities(text)
        if probabilities is None:
            return None
        tiers = dict.fromkeys(Tier, 0.0)
        for (tier, _), probability in zip(self._means, probabilities, strict=True):
            tiers[tier] += probability
        best = max(tiers, key=tiers.__getitem__)
        among: dict[str, float] = {}
        for (tier, scenario), probability in zip(self._means, probabilities, strict=True):
            if tier is best:
                among[scenario] = among.get(scenario, 0.0) + probability
        scenario = max(among, key=among.__getitem__)
        return Classification(best, scenario, SOURCE, scenario, floor(tiers[best] * STEPS) / STEPS)


def _meant(tier: Tier, scenario: str, scenarios: Mapping[str, Scenario], default: str) -> tuple[Tier, str]:
    known = scenarios.get(scenario)
    return (tier, default) if known is None else (known.tier, scenario)

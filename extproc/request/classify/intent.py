"""What the text is about, by the intent model: the classifier after label and rules.

Its work is bounded (features.MOST_CHARS), and the deadline is looked at all the same: a process that is denied the
processor answers late whatever it computes. The clock is the shell's: it hands one in, and nothing here knows
which. What becomes of texts it is unsure about is the shell's as well (`unsure`), and nothing unless a config
allows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import floor

from msgspec import Struct

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
        means = [_meant(group.tier, group.scenario, scenarios, default_scenario) for group in reader.groups]
        self._of_tiers = tuple(_of_tier(tier, means) for tier in Tier)

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
        sums = [sum([probabilities[at] for at in tier.groups]) for tier in self._of_tiers]
        confidence = max(sums)
        best = self._of_tiers[sums.index(confidence)]
        among = [sum([probabilities[at] for at in groups]) for groups in best.of_scenarios]
        scenario = best.scenarios[among.index(max(among))]
        return Classification(best.tier, scenario, SOURCE, scenario, floor(confidence * STEPS) / STEPS)


class _OfTier(Struct, frozen=True):
    """Which groups of labels mean a tier, and which of them each scenario in it."""

    tier: Tier
    groups: tuple[int, ...]
    scenarios: tuple[str, ...]
    of_scenarios: tuple[tuple[int, ...], ...]


def _of_tier(tier: Tier, means: Sequence[tuple[Tier, str]]) -> _OfTier:
    groups = tuple(at for at, (its, _) in enumerate(means) if its is tier)
    scenarios = tuple(dict.fromkeys(means[at][1] for at in groups))
    parts = tuple(tuple(at for at in groups if means[at][1] == scenario) for scenario in scenarios)
    return _OfTier(tier, groups, scenarios, parts)


def _meant(tier: Tier, scenario: str, scenarios: Mapping[str, Scenario], default: str) -> tuple[Tier, str]:
    known = scenarios.get(scenario)
    return (tier, default) if known is None else (known.tier, scenario)

"""The business label of a trusted caller: a scenario's name, or a tier's.

Whether the caller is trusted is not asked again: `Caller.label` is only ever set when it is.
"""

from __future__ import annotations

from collections.abc import Mapping

from extproc.model.names import Tier
from extproc.model.values import Caller, Classification
from extproc.parameters import Scenario
from extproc.snapshot import HasText

SOURCE = "label"


class Labels:
    """A classifier: every label is resolved once, when it is built.

    The verdict's `rule` is the configured name, never the caller's spelling of it, so that audit and
    metrics see a closed vocabulary. A scenario named like a tier wins over the tier.
    """

    def __init__(self, scenarios: Mapping[str, Scenario], *, default_scenario: str) -> None:
        verdicts = {tier.value: _verdict(tier, default_scenario, tier.value) for tier in Tier}
        verdicts |= {name.casefold(): _verdict(scenario.tier, name, name) for name, scenario in scenarios.items()}
        self._verdicts = verdicts

    def __call__(self, request: HasText, caller: Caller) -> Classification | None:
        """The labelled verdict; a label that names nothing is no opinion, so that the text still decides."""
        if caller.label is None:
            return None
        return self._verdicts.get(caller.label.strip().casefold())


def _verdict(tier: Tier, scenario: str, rule: str) -> Classification:
    return Classification(tier=tier, scenario=scenario, source=SOURCE, rule=rule, confidence=1.0)

"""Temperature by tier: fill, cap or force, as the tier's mode says."""

from __future__ import annotations

from collections.abc import Iterable

from extproc.decide.context import Context, Values, change
from extproc.model.names import Field, Mode
from extproc.model.values import ABSENT, Change, Scalar


def temperature(context: Context, values: Values) -> Iterable[Change]:
    # The lowest-latency profile has a temperature of its own.
    if context.lowest_latency:
        return
    tier = context.classification.tier
    target = context.parameters.inference_params.temperature.of(tier)
    mode = context.parameters.inference_params.modes.temperature.of(tier)
    current = values.get(Field.TEMPERATURE)
    if applies(mode, current, target):
        yield change(values, Field.TEMPERATURE, target, f"tier.{tier}", _reason(mode, current, target))
    # A range around the temperature would lead out of what the tier allows.
    if mode is not Mode.DEFAULT and Field.DYNATEMP_RANGE in values:
        yield change(values, Field.DYNATEMP_RANGE, ABSENT, f"tier.{tier}", "the tier limits the temperature")


def applies(mode: Mode, current: Scalar | None, target: float) -> bool:
    """Whether the mode replaces `current`. An absent one under `cap` is the engine's own, which is higher."""
    if current is None:
        return True
    if mode is Mode.CAP:
        return current > target  # type: ignore[operator]
    return mode is Mode.FORCE and current != target


def _reason(mode: Mode, current: Scalar | None, target: float) -> str:
    if current is None:
        return f"absent, filled with {target}"
    return f"capped at {target}" if mode is Mode.CAP else f"forced to {target}"

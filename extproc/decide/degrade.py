"""What a loaded pool costs less with: a lower temperature, no speculative decoding. Lengths: see `length`."""

from __future__ import annotations

from collections.abc import Iterable

from extproc.decide.context import Context, Values, change
from extproc.model.names import Engine, Field
from extproc.model.values import Change

REASON = "the pool is loaded"


def sampling(context: Context, values: Values) -> Iterable[Change]:
    rules = context.degrade
    if rules is None:
        return
    # A lower temperature, strict's above all, stays.
    current = values.get(Field.TEMPERATURE)
    if current is not None and current > rules.temperature:  # type: ignore[operator]
        yield change(values, Field.TEMPERATURE, rules.temperature, "degrade.temperature", REASON)
    # Drafts that are rejected are work for nothing. Only llama.cpp takes this per request.
    if context.engine is Engine.LLAMACPP and values.get(Field.SPECULATIVE) != 0:
        yield change(values, Field.SPECULATIVE, 0, "degrade.speculative", REASON)

"""The lowest-latency profile: greedy, and one answer in one piece where no stream was asked for."""

from __future__ import annotations

from collections.abc import Iterable

from extproc.decide.context import Context, Values, change
from extproc.model.names import Field
from extproc.model.values import Change

RULE = "lowest_latency"


def sampling(context: Context, values: Values) -> Iterable[Change]:
    if not context.lowest_latency:
        return
    if values.get(Field.TEMPERATURE) != 0:
        yield change(values, Field.TEMPERATURE, 0, RULE, "this model or path is tuned for latency")
    if Field.STREAM not in values:
        yield change(values, Field.STREAM, False, RULE, "no stream was asked for")

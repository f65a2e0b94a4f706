"""What a trusted caller set by header. The output length is judged in `length`, under its cap."""

from __future__ import annotations

from collections.abc import Iterable

from extproc.decide.context import Context, Values, change
from extproc.model.names import Field
from extproc.model.values import Change

RULE = "override"


def sampling(context: Context, values: Values) -> Iterable[Change]:
    for field in (Field.TEMPERATURE, Field.TOP_P):
        wanted = context.caller.overrides.get(field)
        if wanted is not None and wanted != values.get(field):
            yield change(values, field, wanted, RULE, "set by a trusted caller")

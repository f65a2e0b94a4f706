"""How many answers one request may ask for: `n` and `best_of` multiply the length's cap."""

from __future__ import annotations

from collections.abc import Iterable

from extproc.decide.context import Context, Values, change
from extproc.model.names import Field
from extproc.model.values import Change


def limit(context: Context, values: Values) -> Iterable[Change]:
    limits = context.parameters.inference_params.fan_out
    for field, most in ((Field.N, limits.n), (Field.BEST_OF, limits.best_of)):
        asked = values.get(field)
        if asked is not None and asked > most:  # type: ignore[operator]
            yield change(values, field, most, "fan_out", f"at most {most} answers a request")

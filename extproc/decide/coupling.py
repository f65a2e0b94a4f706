"""Temperature, top_p and beams must fit together."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from extproc.decide.context import Context, Values, change
from extproc.model.names import SAMPLING_FIELDS, Field, Mode
from extproc.model.values import ABSENT, Change
from extproc.parameters import BeamRule, LinePoint


def greedy(context: Context, values: Values) -> Iterable[Change]:
    """Temperature 0: top_p 1.0, and nothing that shapes random sampling."""
    if values.get(Field.TEMPERATURE) != 0:
        return
    if values.get(Field.TOP_P) != 1 and Field.TOP_P not in context.caller.overrides:
        yield change(values, Field.TOP_P, 1.0, "coupling.greedy", "temperature is 0")
    for field in SAMPLING_FIELDS:
        if field in values:
            yield change(values, field, ABSENT, "coupling.greedy", "temperature is 0")
    # Greedy answers are all the same, and engines refuse to give several: not a mistake of this client's.
    if context.request.given.get(Field.TEMPERATURE) != 0 and values.get(Field.N, 1) > 1:  # type: ignore[operator]
        yield change(values, Field.N, 1, "coupling.greedy", "temperature is 0")


def line(context: Context, values: Values) -> Iterable[Change]:
    """Where temperature was lowered, top_p is lowered to the line, or added."""
    temperature = values.get(Field.TEMPERATURE)
    if temperature is None or temperature == 0 or Field.TOP_P in context.caller.overrides:
        return
    if not _lowered(context, float(temperature)):
        return
    limit = on_line(context.parameters.inference_params.coupling.line, float(temperature))
    top_p = values.get(Field.TOP_P)
    if top_p is None or top_p > limit:  # type: ignore[operator]
        yield change(values, Field.TOP_P, limit, "coupling.line", f"temperature was lowered to {temperature:g}")


def beams_temperature(context: Context, values: Values) -> Iterable[Change]:
    """More beams want a lower temperature; the line then fits top_p to it."""
    temperature = values.get(Field.TEMPERATURE)
    for rule, why in _beam_rules(context, values):
        most = rule.max_temperature
        if most is not None and (temperature is None or temperature > most):  # type: ignore[operator]
            yield change(values, Field.TEMPERATURE, most, "coupling.beams", why)


def beams_top_p(context: Context, values: Values) -> Iterable[Change]:
    """Many beams want a wide top_p. Last, and winning."""
    top_p = values.get(Field.TOP_P)
    for rule, why in _beam_rules(context, values):
        if rule.min_top_p is not None and top_p is not None and top_p < rule.min_top_p:  # type: ignore[operator]
            yield change(values, Field.TOP_P, rule.min_top_p, "coupling.beams", why)


def _beam_rules(context: Context, values: Values) -> list[tuple[BeamRule, str]]:
    count = values.get(Field.BEAMS, 0)
    rules = context.parameters.inference_params.coupling.beams
    return [(rule, f"{count} beams, more than {rule.above}") for rule in rules if count > rule.above]  # type: ignore[operator]


def on_line(points: Sequence[LinePoint], temperature: float) -> float:
    """top_p on the line through ascending points, clamped outside; four decimals."""
    at = bisect_right([point.temperature for point in points], temperature)
    if at == 0:
        return points[0].top_p
    if at == len(points):
        return points[-1].top_p
    low, high = points[at - 1], points[at]
    share = (temperature - low.temperature) / (high.temperature - low.temperature)
    return round(low.top_p + share * (high.top_p - low.top_p), 4)


def _lowered(context: Context, temperature: float) -> bool:
    """Against the client's value; an absent one counts as lowered where the tier's mode limits the engine's own."""
    asked = context.request.given.get(Field.TEMPERATURE)
    if asked is not None:
        return temperature < asked  # type: ignore[operator]
    if Field.TEMPERATURE in context.caller.overrides:
        return False
    modes = context.parameters.inference_params.modes.temperature
    return modes.of(context.classification.tier) is not Mode.DEFAULT

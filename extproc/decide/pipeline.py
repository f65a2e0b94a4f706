"""The order of the policies, and how their changes become one decision."""

from __future__ import annotations

from extproc.decide import coupling, degrade, fan_out, length, lowest_latency, override, priority, tiers
from extproc.decide.context import GENERATES, Context, Policy
from extproc.model.names import Field
from extproc.model.values import ABSENT, Change, Scalar, Value

GENERATION: tuple[Policy, ...] = (
    tiers.temperature,
    lowest_latency.sampling,
    degrade.sampling,
    override.sampling,
    coupling.beams_temperature,
    coupling.greedy,
    coupling.line,
    coupling.beams_top_p,
    fan_out.limit,
    length.grant,
    priority.engine_field,
)
"""Later policies see what earlier ones set; the trusted override stands after the tiers and before what
keeps a request valid, the length cap last among the parameters."""

WITHOUT_GENERATION: tuple[Policy, ...] = (priority.engine_field,)


def changes(context: Context) -> tuple[Change, ...]:
    """At most one change per field, from the client's value to the final one, by the last rule that set it."""
    policies = GENERATION if context.request.dialect in GENERATES else WITHOUT_GENERATION
    values: dict[Field, Scalar] = dict(context.request.given)
    merged: dict[Field, Change] = {}
    for policy in policies:
        for change in policy(context, values):
            if change.field in values or change.field in context.request.insertable:
                _apply(values, change)
                merged[change.field] = change
    return tuple(final for change in merged.values() if (final := _whole(context, change)) is not None)


def _apply(values: dict[Field, Scalar], change: Change) -> None:
    if change.after is ABSENT:
        values.pop(change.field, None)
    else:
        values[change.field] = change.after


def _same(before: Value, after: Value) -> bool:
    """1 and 1.0 are one number; true is none."""
    return before == after and isinstance(before, bool) is isinstance(after, bool)


def _whole(context: Context, change: Change) -> Change | None:
    """The change seen from the client's value; None where the rules came back to it."""
    before = context.request.given.get(change.field, ABSENT)
    if _same(before, change.after) and not (change.field is Field.MAX_TOKENS and context.respell_length):
        return None
    return Change(change.field, before, change.after, change.rule, change.reason)

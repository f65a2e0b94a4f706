"""Priority class and the engine's own field for it."""

from __future__ import annotations

from collections.abc import Iterable

from extproc.decide.context import Context, Values, change
from extproc.model.names import Dialect, Engine, Field, RequestClass
from extproc.model.values import Caller, Change
from extproc.parameters import Scenario
from extproc.trust import Tenants

ENGINE_PRIORITY: dict[Engine, dict[RequestClass, int]] = {
    Engine.VLLM: {RequestClass.CRITICAL: -10, RequestClass.NORMAL: 0, RequestClass.BEST_EFFORT: 10},
    Engine.TRITON: {RequestClass.CRITICAL: 1, RequestClass.NORMAL: 2, RequestClass.BEST_EFFORT: 3},
}
"""vLLM runs lower numbers first, Triton's level 1 is the first; llama.cpp has no such field."""


def request_class(caller: Caller, tenants: Tenants, scenario: Scenario | None) -> RequestClass:
    """The trusted caller's word, else the tenant's class, else the scenario's, else normal."""
    if caller.request_class is not None:
        return caller.request_class
    by_tenant = tenants.classes.get(caller.tenant)
    if by_tenant is not None:
        return by_tenant
    by_scenario = scenario.request_class if scenario else None
    return by_scenario or RequestClass.NORMAL


def engine_field(context: Context, values: Values) -> Iterable[Change]:
    # An engine that does not schedule by priority refuses or ignores the field.
    if not context.schedules_by_priority or context.engine not in ENGINE_PRIORITY:
        return
    # Triton's generate hands unknown fields to the model: only models known to read it get one.
    if context.request.dialect is Dialect.TRITON_GENERATE and not context.profile.triton.generate_priority:
        return
    wanted = ENGINE_PRIORITY[context.engine][context.request_class]
    if values.get(Field.PRIORITY) != wanted:
        yield change(values, Field.PRIORITY, wanted, f"priority.{context.request_class}", "the request's class")

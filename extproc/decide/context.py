"""What a policy sees, and the shape every policy has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from extproc.model.names import Dialect, Engine, Field, RequestClass
from extproc.model.values import ABSENT, Caller, Change, Classification, InferenceRequest, Scalar, Value
from extproc.parameters import ParameterSet
from extproc.protect.settings import DegradeConfig
from extproc.registry import EngineRules, Profile


class Context(Struct, frozen=True):
    """Everything known about one request. `respell_length` = its length keys must change even at one value."""

    request: InferenceRequest
    caller: Caller
    classification: Classification
    request_class: RequestClass
    parameters: ParameterSet
    profile: Profile
    engine: Engine
    engine_rules: EngineRules
    schedules_by_priority: bool
    lowest_latency: bool
    respell_length: bool
    lengths: Mapping[str, int] = {}
    """Learnt output lengths in tokens, by scenario."""
    degrade: DegradeConfig | None = None
    """Set while the pool is loaded."""


Values = Mapping[Field, Scalar]
Policy = Callable[[Context, Values], Iterable[Change]]

GENERATES = frozenset(Dialect) - {Dialect.OPENAI_EMBEDDINGS}


def change(values: Values, field: Field, after: Value, rule: str, reason: str) -> Change:
    return Change(field, values.get(field, ABSENT), after, rule, reason)

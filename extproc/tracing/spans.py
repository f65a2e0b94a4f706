"""What a span of a decision tells, by names of the GenAI semantic conventions and by ours, which begin with `llm.`.

Never any text of a request. https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from extproc.model.commands import RecordDecision, RecordReject
from extproc.model.names import Dialect, Field
from extproc.model.values import Decision
from extproc.tracing.context import Parent

Value = str | bool | int | float | tuple[str, ...]

_OPERATIONS = {
    Dialect.OPENAI_CHAT: "chat",
    Dialect.OPENAI_RESPONSES: "chat",
    Dialect.ANTHROPIC_MESSAGES: "chat",
    Dialect.OPENAI_EMBEDDINGS: "embeddings",
}
OTHER_OPERATION = "text_completion"

_FIELDS: Mapping[Field, tuple[str, type[int] | type[float]]] = {
    Field.TEMPERATURE: ("gen_ai.request.temperature", float),
    Field.TOP_P: ("gen_ai.request.top_p", float),
    Field.TOP_K: ("gen_ai.request.top_k", float),
    Field.N: ("gen_ai.request.choice.count", int),
}
"""Parameters with a name of the conventions, where the decision set them."""

MAX_TEXT = 200
"""Characters of a name that a client chose."""


class Span(Struct, frozen=True):
    """One decision. `started_s`, `ended_s` in seconds since the epoch; `parent` None begins a trace."""

    trace_id: bytes
    span_id: bytes
    parent: Parent | None
    started_s: float
    ended_s: float
    request_id: str
    dialect: Dialect | None
    record: RecordDecision | RecordReject


def name(span: Span) -> str:
    """Few different ones, as a backend groups by it: a model's name, which a client chooses, is an attribute."""
    return f"decide {operation(span.dialect)}"


def operation(dialect: Dialect | None) -> str:
    return OTHER_OPERATION if dialect is None else _OPERATIONS.get(dialect, OTHER_OPERATION)


def attributes(span: Span) -> dict[str, Value]:
    """By name; what is not known is left out."""
    told: dict[str, Value] = {"gen_ai.operation.name": operation(span.dialect), "llm.request_id": span.request_id}
    if span.dialect is not None:
        told["llm.dialect"] = span.dialect.value
    if isinstance(span.record, RecordReject):
        told |= {"error.type": span.record.reason, "http.response.status_code": span.record.status}
    else:
        told |= _decided(span.record.decision)
    return {key: value for key, value in told.items() if value not in ("", ())}


def _decided(decision: Decision) -> dict[str, Value]:
    told: dict[str, Value] = {
        "gen_ai.provider.name": decision.engine.value,
        "gen_ai.request.model": (decision.model or "")[:MAX_TEXT],
        "llm.tier": decision.tier.value,
        "llm.reason": decision.rule or decision.source,
        "llm.scenario": decision.scenario,
        "llm.confidence": decision.confidence,
        "llm.class": decision.request_class.value,
        "llm.tenant": decision.tenant,
        "llm.pool": decision.pool or "",
        "llm.parameter_set": decision.parameter_set,
        "llm.fallback": decision.fallback,
        "llm.changes": tuple(f"{change.field.value}:{change.rule}" for change in decision.changes),
    }
    if decision.max_tokens is not None:
        told["gen_ai.request.max_tokens"] = decision.max_tokens
    for change in decision.changes:
        known = _FIELDS.get(change.field)
        if known is not None and isinstance(change.after, int | float):
            told[known[0]] = known[1](change.after)
    return told

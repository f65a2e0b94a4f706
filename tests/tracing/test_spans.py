"""What a span tells, and by which names."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from msgspec.structs import replace
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv.attributes import error_attributes, http_attributes

from extproc.model.commands import RecordDecision, RecordReject
from extproc.model.names import Dialect, Field
from extproc.model.values import Change
from extproc.tracing.spans import MAX_TEXT, Span, attributes, name
from tests.decisions import decided

CONVENTIONS = {
    value
    for module in (gen_ai_attributes, error_attributes, http_attributes)
    for value in vars(module).values()
    if isinstance(value, str)
}


@dataclass(frozen=True)
class Made:
    model: str | None = "qwen"
    changes: tuple[Change, ...] = ()

    def span(self, dialect: Dialect | None = Dialect.OPENAI_CHAT) -> Span:
        record = decided(dialect=dialect)
        decision = replace(record.decision, model=self.model, changes=self.changes)
        return span(replace(record, decision=decision), dialect)


def span(record: RecordDecision | RecordReject, dialect: Dialect | None = Dialect.OPENAI_CHAT) -> Span:
    return Span(b"t" * 16, b"s" * 8, None, 1.0, 2.0, "r-1", dialect, record)


def change(field: Field, after: float | int | str) -> Change:
    return Change(field, None, after, "tier", "strict")


CHANGES = (
    change(Field.TEMPERATURE, 0.3),
    change(Field.TOP_P, 0.85),
    change(Field.TOP_K, 40),
    change(Field.N, 4),
    change(Field.PRIORITY, 0),
)


def test_a_decision_by_names_of_the_conventions_and_ours() -> None:
    told = attributes(Made(changes=CHANGES).span())
    assert told == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": "qwen",
        "gen_ai.request.max_tokens": 256,
        "gen_ai.request.temperature": 0.3,
        "gen_ai.request.top_p": 0.85,
        "gen_ai.request.top_k": 40.0,
        "gen_ai.request.choice.count": 4,
        "llm.request_id": "r-1",
        "llm.dialect": "openai_chat",
        "llm.tier": "strict",
        "llm.reason": "order",
        "llm.scenario": "order",
        "llm.confidence": 0.9,
        "llm.class": "best-effort",
        "llm.tenant": "anonymous",
        "llm.parameter_set": "default@0123456789ab",
        "llm.changes": ("temperature:tier", "top_p:tier", "top_k:tier", "n:tier", "priority:tier"),
    }
    assert isinstance(told["gen_ai.request.top_k"], float)


def test_every_name_is_ours_or_of_the_conventions() -> None:
    told = attributes(Made(changes=CHANGES).span()) | attributes(span(RecordReject("body_too_large", 413)))
    for each in told:
        assert each.startswith("llm.") or each in CONVENTIONS, each


@pytest.mark.parametrize(
    ("dialect", "operation"),
    [
        (Dialect.OPENAI_CHAT, "chat"),
        (Dialect.OPENAI_RESPONSES, "chat"),
        (Dialect.ANTHROPIC_MESSAGES, "chat"),
        (Dialect.OPENAI_EMBEDDINGS, "embeddings"),
        (Dialect.OPENAI_COMPLETIONS, "text_completion"),
        (Dialect.LLAMACPP_COMPLETION, "text_completion"),
        (Dialect.TRITON_GENERATE, "text_completion"),
        (Dialect.TRITON_INFER, "text_completion"),
        (None, "text_completion"),
    ],
)
def test_operations(dialect: Dialect | None, operation: str) -> None:
    made = Made().span(dialect)
    assert attributes(made)["gen_ai.operation.name"] == operation
    assert name(made) == f"decide {operation}"


def test_a_rejection_tells_why() -> None:
    told = attributes(span(RecordReject("body_too_large", 413)))
    assert (told["error.type"], told["http.response.status_code"]) == ("body_too_large", 413)


def test_what_is_not_known_is_left_out_and_what_is_long_is_cut() -> None:
    assert "gen_ai.request.model" not in attributes(Made(model=None).span())
    assert attributes(Made(model="x" * 10_000).span())["gen_ai.request.model"] == "x" * MAX_TEXT

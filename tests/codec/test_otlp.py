"""Spans as the official classes read them."""

from __future__ import annotations

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1 import trace_pb2

from extproc.codec.otlp import encode, rejected
from extproc.model.commands import RecordDecision, RecordReject
from extproc.model.names import Dialect, Field
from extproc.tracing.context import Parent
from extproc.tracing.spans import Span
from tests.collector import attributes
from tests.decisions import decided

PARENT = Parent(b"t" * 16, b"p" * 8, True, "congo=1")


def span(parent: Parent | None = PARENT, record: RecordDecision | RecordReject | None = None) -> Span:
    record = record or decided((Field.TEMPERATURE, "tier"))
    return Span(b"t" * 16, b"s" * 8, parent, 1.5, 1.75, "r-\xff", Dialect.OPENAI_CHAT, record)


def read(*spans: Span) -> tuple[ExportTraceServiceRequest, list[trace_pb2.Span]]:
    request = ExportTraceServiceRequest.FromString(encode(spans, {"service.name": "extproc"}, "1.2"))
    return request, list(request.resource_spans[0].scope_spans[0].spans)


def test_a_span_arrives_whole() -> None:
    request, (found,) = read(span())
    assert request.resource_spans[0].resource.attributes[0].value.string_value == "extproc"
    assert request.resource_spans[0].scope_spans[0].scope.version == "1.2"
    assert (found.trace_id, found.span_id, found.parent_span_id) == (b"t" * 16, b"s" * 8, b"p" * 8)
    assert (found.name, found.trace_state) == ("decide chat", "congo=1")
    assert found.kind == trace_pb2.Span.SPAN_KIND_INTERNAL
    assert (found.start_time_unix_nano, found.end_time_unix_nano) == (1_500_000_000, 1_750_000_000)
    assert found.flags == 0x301
    told = attributes(found)
    assert told["llm.changes"] == ["temperature:tier"]
    assert (told["gen_ai.request.max_tokens"], told["llm.confidence"], told["llm.request_id"]) == (256, 0.9, "r-ÿ")


def test_without_a_parent_it_begins_a_trace() -> None:
    _, (found,) = read(span(None))
    assert (found.parent_span_id, found.flags) == (b"", 1)


def test_only_what_is_our_fault_is_an_error() -> None:
    _, (ours, theirs) = read(span(record=RecordReject("no_pool", 503)), span(record=RecordReject("too_large", 413)))
    assert (ours.status.code, ours.status.message) == (trace_pb2.Status.STATUS_CODE_ERROR, "no_pool")
    assert theirs.status.code == trace_pb2.Status.STATUS_CODE_UNSET


def test_names_that_utf8_cannot_hold_are_replaced() -> None:
    record = decided()
    lone = Span(b"t" * 16, b"s" * 8, None, 1.0, 0.5, "\udcff", None, record)
    _, (found,) = read(lone)
    assert attributes(found)["llm.request_id"] == "?"
    assert found.end_time_unix_nano == found.start_time_unix_nano, "a clock that went back"


def test_what_a_collector_rejected() -> None:
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = 3
    assert rejected(answer.SerializeToString()) == 3
    assert rejected(b"") == 0
    assert rejected(b"<html>") == 0

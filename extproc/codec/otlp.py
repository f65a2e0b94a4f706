"""Spans as OTLP's binary protobuf, the encoding every collector takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from google.protobuf.message import DecodeError

from extproc.codec.wire import otlp_pb2 as wire
from extproc.model.commands import RecordReject
from extproc.tracing.spans import Span, Value, attributes, name

CONTENT_TYPE = "application/x-protobuf"

INTERNAL = 1
ERROR = 2
SERVER_ERROR = 500

_SAMPLED = 0x01
_REMOTE = 0x300
"""The parent is of another process, and that is known."""


def encode(spans: Sequence[Span], resource: Mapping[str, Value], version: str) -> bytes:
    """One export request; `resource` tells whose they are."""
    request = wire.ExportTraceRequest()
    group = request.resource_spans.add()
    _fill(group.resource.attributes, resource)
    scope = group.scope_spans.add()
    scope.scope.name, scope.scope.version = "extproc", version
    for span in spans:
        _add(scope.spans.add(), span)
    return bytes(request.SerializeToString())


def rejected(answer: bytes) -> int:
    """How many spans a collector that answered 200 did not keep; 0 where the answer is none."""
    try:
        return int(wire.ExportTraceResponse.FromString(answer).partial_success.rejected_spans)
    except DecodeError:
        return 0


def _add(out: wire.Span, span: Span) -> None:
    out.trace_id, out.span_id, out.flags = span.trace_id, span.span_id, _SAMPLED
    if span.parent is not None:
        out.parent_span_id, out.trace_state = span.parent.span_id, span.parent.state
        out.flags |= _REMOTE
    out.name, out.kind = name(span), INTERNAL
    out.start_time_unix_nano = int(span.started_s * 1e9)
    out.end_time_unix_nano = max(out.start_time_unix_nano, int(span.ended_s * 1e9))
    _fill(out.attributes, attributes(span))
    if isinstance(span.record, RecordReject) and span.record.status >= SERVER_ERROR:
        out.status.code, out.status.message = ERROR, span.record.reason


def _fill(out: object, values: Mapping[str, Value]) -> None:
    for key, value in values.items():
        _set(out.add(key=_text(key)).value, value)  # type: ignore[attr-defined]


def _set(out: wire.AnyValue, value: Value) -> None:
    match value:
        case bool():
            out.bool_value = value
        case int():
            out.int_value = value
        case float():
            out.double_value = value
        case str():
            out.string_value = _text(value)
        case tuple():
            for each in value:
                out.array_value.values.add().string_value = _text(each)


def _text(value: str) -> str:
    """Names of clients may hold what UTF-8 cannot."""
    return value.encode("utf-8", "replace").decode()

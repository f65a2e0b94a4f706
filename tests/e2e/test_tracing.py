"""Spans of decisions through the real Envoy to a real collector."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.collector import Collector, attributes
from tests.e2e.asking import CHAT, ask, chat, new_id
from tests.e2e.running import Engine, Stack, until

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SECRET = "order #12345678 of somebody"


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


def test_every_line_is_json_where_that_is_asked_for(open_files: None) -> None:
    """Of every process: the supervisor's, the control process's, the workers'."""
    with Stack(changes={"workers": 2, "logging": {"format": "json"}}) as running:
        ask(running.port, CHAT, chat(SECRET))
        running.sidecar.stop()
        lines = [line for line in running.sidecar.running.log().splitlines() if line.startswith("{")]
        told = [json.loads(line) for line in lines]
        rest = set(running.sidecar.running.log().splitlines()) - set(lines)
    assert "extproc.worker" in {each["logger"] for each in told}
    assert all({"ts", "level", "logger", "message"} <= each.keys() for each in told)
    assert all(line.split()[0] in {"ext_proc", "control", "admin", "audit"} for line in rest if line), rest
    assert not any(SECRET in line for line in lines)


@pytest.fixture(
    scope="module",
    params=[{"transport": "fast"}, {"transport": "grpc"}, {"workers": 2}],
    ids=["fast", "grpc", "workers"],
)
def traced(request: pytest.FixtureRequest, collector: Collector, open_files: None) -> Iterator[Stack]:
    tracing = {"enabled": True, "endpoint": collector.url, "interval_s": 0.1, "service_name": "shop-llm"}
    with Stack(changes={**request.param, "tracing": tracing}) as running:
        yield running


def sent(stack: Stack, parent: str, text: str = SECRET, **body: object) -> str:
    """One request; its id."""
    request_id = new_id()
    headers = {"x-request-id": request_id, "traceparent": parent}
    assert ask(stack.port, CHAT, {**chat(text), **body}, headers).status in (200, 400, 413)
    return request_id


def spans(collector: Collector, request_id: str) -> list[Span]:
    return [span for span in collector.spans() if attributes(span)["llm.request_id"] == request_id]


def test_the_clients_trace_goes_on(traced: Stack, collector: Collector) -> None:
    request_id = sent(traced, f"00-{TRACE}-{PARENT}-01", temperature=1.5)
    until(lambda: spans(collector, request_id), what="a span")
    (span,) = spans(collector, request_id)
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    assert 0 < span.end_time_unix_nano - span.start_time_unix_nano < 10**10
    told = attributes(span)
    assert told["gen_ai.operation.name"] == "chat"
    assert told["gen_ai.request.temperature"] == 0.3
    assert told["gen_ai.request.model"] == chat("x")["model"]
    assert (told["llm.tier"], told["llm.reason"], told["llm.scenario"]) == ("strict", "order_number", "order_query")
    resource = collector.requests[-1].resource_spans[0].resource.attributes
    assert {each.key: each.value.string_value for each in resource}["service.name"] == "shop-llm"


def test_the_counts_are_told_and_no_text_is(traced: Stack, collector: Collector) -> None:
    before = traced.sidecar.count("llm_trace_spans_total", result="exported")
    sent(traced, f"00-{TRACE}-{PARENT}-01")
    until(lambda: traced.sidecar.count("llm_trace_spans_total", result="exported") > before, what="a count")
    assert all(SECRET.encode() not in each.SerializeToString() for each in collector.requests)


@pytest.mark.parametrize("parent", [f"00-{TRACE}-{PARENT}-00", "nonsense", f"00-{'0' * 32}-{PARENT}-01"])
def test_who_is_not_sampled_or_malformed_has_no_span(traced: Stack, collector: Collector, parent: str) -> None:
    left_out = sent(traced, parent)
    kept = sent(traced, f"00-{TRACE}-{PARENT}-01")
    until(lambda: spans(collector, kept), what="the span after it")
    assert not spans(collector, left_out)


def test_a_rejection_has_its_span(traced: Stack, collector: Collector) -> None:
    request_id = sent(traced, f"00-{TRACE}-{PARENT}-01", temperature="warm")
    until(lambda: spans(collector, request_id), what="a span")
    (span,) = spans(collector, request_id)
    assert attributes(span)["http.response.status_code"] == 400


def test_the_engine_gets_the_clients_header(traced: Stack) -> None:
    request_id = sent(traced, f"00-{TRACE}-{PARENT}-01")
    engine: Engine = traced.engine
    assert engine.one(request_id)["headers"]["traceparent"] == [f"00-{TRACE}-{PARENT}-01"]

"""An OTLP/HTTP collector: takes what the official classes can read, and keeps it."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.ports import free_port


class Collector:
    """`statuses` are what the next requests are answered with, then 200. `reject`: so many spans of each request."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.content_types: list[str] = []
        self.statuses: list[int] = []
        self.reject = 0
        self.asked = 0
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/v1/traces"
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                status, answer = collector.take(self, self.rfile.read(int(self.headers["content-length"])))
                self.send_response(status)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)

    def take(self, handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes]:
        self.asked += 1
        if self.statuses and (status := self.statuses.pop(0)) != 200:
            return status, b""
        self.requests.append(ExportTraceServiceRequest.FromString(body))
        self.content_types.append(handler.headers["content-type"])
        answer = ExportTraceServiceResponse()
        answer.partial_success.rejected_spans = self.reject
        return 200, answer.SerializeToString()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def spans(self) -> list[Span]:
        return [
            span
            for request in list(self.requests)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


def attributes(span: Span) -> dict[str, Any]:
    """By name; arrays as lists."""
    told = {}
    for each in span.attributes:
        kind = each.value.WhichOneof("value")
        value = getattr(each.value, kind)
        told[each.key] = [one.string_value for one in value.values] if kind == "array_value" else value
    return told

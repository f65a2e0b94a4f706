"""Envoy with the observing filter, the observer as a process, and an engine that cuts its answers where asked."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self, cast

import msgspec

from extproc.cli.envoy_binary import find_envoy
from extproc.model.telemetry import UsageSample
from tests.e2e.running import Running, get, until
from tests.ports import free_port

CONFIG = """
admin: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {admin}}}}}}}
layered_runtime: {{layers: [{{name: base, static_layer: {{envoy.reloadable_features.grpc_side_stream_flow_control: false}}}}]}}
static_resources:
  listeners:
  - name: l
    address: {{socket_address: {{address: 127.0.0.1, port_value: {front}}}}}
    per_connection_buffer_limit_bytes: 32768
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: l
          stream_idle_timeout: 0s
          http_filters:
          - name: envoy.filters.http.ext_proc
            disabled: true
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor
              grpc_service: {{envoy_grpc: {{cluster_name: decision}}}}
              failure_mode_allow: true
              processing_mode: {{request_header_mode: SEND, request_body_mode: BUFFERED, response_header_mode: SKIP}}
          - name: llm.usage
            disabled: true
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor
              stat_prefix: usage
              grpc_service: {{envoy_grpc: {{cluster_name: control}}}}
              observability_mode: true
              deferred_close_timeout: 1s
              failure_mode_allow: true
              processing_mode:
                request_header_mode: SEND
                request_body_mode: NONE
                request_trailer_mode: SKIP
                response_header_mode: SEND
                response_body_mode: STREAMED
                response_trailer_mode: SEND
              forward_rules:
                allowed_headers:
                  patterns:
                  - {{exact: ":path"}}
                  - {{exact: ":status"}}
                  - {{exact: content-type}}
                  - {{exact: content-encoding}}
                  - {{prefix: x-llm-}}
          - name: envoy.filters.http.router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
          route_config:
            virtual_hosts:
            - name: v
              domains: ["*"]
              routes:
              - match: {{prefix: /, headers: [{{name: x-judge, present_match: true}}]}}
                route: {{cluster: engine, timeout: 0s}}
                typed_per_filter_config:
                  envoy.filters.http.ext_proc: &on
                    "@type": type.googleapis.com/envoy.config.route.v3.FilterConfig
                    config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute
                      overrides: {{}}
                  llm.usage: *on
              - match: {{prefix: /v1/unobserved}}
                route: {{cluster: engine, timeout: 0s}}
              - match: {{prefix: /v1/switched-off}}
                route: {{cluster: engine, timeout: 0s}}
                typed_per_filter_config:
                  llm.usage:
                    "@type": type.googleapis.com/envoy.config.route.v3.FilterConfig
                    disabled: true
                    config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute
                      overrides: {{}}
              - match: {{prefix: /}}
                route: {{cluster: engine, timeout: 0s}}
                typed_per_filter_config: {{llm.usage: *on}}
  clusters:
  - name: engine
    type: STATIC
    per_connection_buffer_limit_bytes: 32768
    load_assignment: {{cluster_name: engine, endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {engine}}}}}}}}}]}}]}}
  - name: decision
    type: STATIC
    typed_extension_protocol_options: &grpc
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{http2_protocol_options: {{}}}}
    circuit_breakers: &many {{thresholds: [{{max_connections: 1024, max_requests: 100000, max_pending_requests: 100000}}]}}
    load_assignment: {{cluster_name: decision, endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{pipe: {{path: {folder}/decision.sock}}}}}}}}]}}]}}
  - name: control
    type: STATIC
    typed_extension_protocol_options: *grpc
    circuit_breakers: *many
    load_assignment: {{cluster_name: control, endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{pipe: {{path: {folder}/control.sock}}}}}}}}]}}]}}
"""


class Observer(Running):
    """The observer's process, and what it has written down."""

    def __init__(self, folder: Path, delay_s: float = 0.0) -> None:
        self.written = folder / "verdicts.jsonl"
        self.written.write_bytes(b"")
        command = [sys.executable, "-m", "tests.usage.observer_process", "--out", str(self.written)]
        command += ["--socket", f"unix:{folder}/control.sock", "--delay-s", str(delay_s)]
        super().__init__(command, folder / "observer.log")
        until(lambda: "observing" in self.log(), what="observer")

    def verdicts(self) -> list[tuple[str, str]]:
        return [(line["outcome"], line["reason"]) for line in self._lines() if "outcome" in line]

    def count(self) -> int:
        return self.written.read_bytes().count(b'"outcome"')

    def samples(self) -> list[UsageSample]:
        return [msgspec.convert(line["sample"], UsageSample) for line in self._lines() if "sample" in line]

    def await_verdicts(self, count: int, *, within_s: float = 20.0) -> list[tuple[str, str]]:
        until(lambda: self.count() >= count, within_s=within_s, what=f"{count} verdicts")
        return self.verdicts()

    def peak_bytes(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]

    def _lines(self) -> Iterator[dict[str, Any]]:
        text = self.written.read_bytes()
        return map(json.loads, text[: text.rfind(b"\n") + 1].splitlines())


class Watched:
    """Envoy and an observer. The engine is the test's to run, on `engine_port`."""

    def __init__(self, *, delay_s: float = 0.0) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="usage-"))
        self.port, self.admin_port, self.engine_port = free_port(), free_port(), free_port()
        self.observer = Observer(self.folder, delay_s)
        config = self.folder / "envoy.yaml"
        ports = {"front": self.port, "admin": self.admin_port, "engine": self.engine_port}
        config.write_text(CONFIG.format(folder=self.folder, **ports))
        command = [str(find_envoy()), "-c", str(config), "--use-dynamic-base-id", "-l", "warning"]
        self.envoy = Running([*command, "--concurrency", "1"], self.folder / "envoy.log")
        until(self._ready, within_s=20, what="Envoy")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.envoy.stop()
        self.observer.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def stat(self, name: str) -> int:
        text = get(f"http://127.0.0.1:{self.admin_port}/stats?filter=^{re.escape(name)}$").decode()
        return int(text.rpartition(": ")[2])

    def _ready(self) -> bool:
        assert self.envoy.process.poll() is None, self.envoy.log()
        try:
            return get(f"http://127.0.0.1:{self.admin_port}/ready").startswith(b"LIVE")
        except OSError:
            return False


Answer = Callable[[str, asyncio.StreamWriter], Any]
"""Writes an answer, given the request's head."""


@asynccontextmanager
async def engine(port: int, answer: Answer) -> AsyncIterator[None]:
    """A raw HTTP server: what is written leaves as it is written."""

    serving: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(cast(Any, asyncio.current_task()))
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                await reader.readexactly(int(header(head, "content-length") or 0))
                await answer(head, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield
    finally:
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving)


def header(head: str, name: str) -> str:
    found = re.search(rf"(?i)\r\n{name}: *([^\r]*)", head)
    return found[1] if found else ""


def chunk(data: bytes) -> bytes:
    """In chunked coding; nothing for nothing, which would be the end."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ntransfer-encoding: chunked\r\n\r\n"
EVENTS = HEAD % b"text/event-stream"
END = b"0\r\n\r\n"


class Client:
    """One connection, kept alive."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, port: int) -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def send(self, path: str, **headers: str) -> None:
        lines = [f"POST {path} HTTP/1.1", "host: x", "content-length: 2"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join([*lines, "", "{}"]).encode())

    async def answer(self, arrived: Callable[[int], object] = lambda _: None) -> bytes:
        """The whole body of a chunked answer; `arrived` hears how much of it is here, after each piece."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        body = b""
        while size := int(await self.reader.readline(), 16):
            body += (await self.reader.readexactly(size + 2))[:-2]
            arrived(len(body))
        await self.reader.readline()
        return body

    async def ask(self, path: str, **headers: str) -> bytes:
        await self.send(path, **headers)
        return await self.answer()

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()

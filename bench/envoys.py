"""Envoys of the benchmark: how one is started, and the one that stands in for the engine.

One in Python would cost more than what is measured. It reads the body, answers at once, and tells in response
headers what it was sent, so that a variant that does not work is noticed.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.processes import admin, free_port, running
from extproc.cli.envoy_binary import find_envoy
from extproc.resources.template import dump

Node = dict[str, Any]


@contextlib.contextmanager
def engine(folder: Path) -> Iterator[int]:
    """The engine's port while it runs."""
    folder.mkdir()
    port, pipe = free_port(), folder / "admin.sock"
    config = written(folder, engine_config(port, pipe))
    with running("the engine", envoy_command(config, "--concurrency", "1"), folder / "log", live(pipe)):
        yield port


def engine_config(port: int, pipe: Path) -> Node:
    seen = {"x-seen-length": "%REQ(content-length)%", "x-seen-params": "%REQ(x-llm-params)%"}
    route = {
        "match": {"prefix": "/"},
        "direct_response": {"status": 200, "body": {"inline_string": "{}"}},
        "response_headers_to_add": [{"header": {"key": key, "value": value}} for key, value in seen.items()],
    }
    manager = {
        **_typed("filters.network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": "engine",
        "http_filters": [
            # Reads the whole body before the answer; without it the connection would end with each request.
            _filter("buffer", "buffer.v3.Buffer", max_request_bytes=1 << 26),
            _filter("router", "router.v3.Router"),
        ],
        "route_config": {"virtual_hosts": [{"name": "engine", "domains": ["*"], "routes": [route]}]},
    }
    chain = {"filters": [{"name": "http", "typed_config": manager}]}
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    return {
        "admin": {"address": {"pipe": {"path": str(pipe)}}},
        "static_resources": {"listeners": [{"name": "engine", "address": address, "filter_chains": [chain]}]},
    }


def _typed(name: str) -> Node:
    return {"@type": f"type.googleapis.com/envoy.extensions.{name}"}


def _filter(name: str, kind: str, **fields: Any) -> Node:
    return {"name": f"envoy.filters.http.{name}", "typed_config": _typed(f"filters.http.{kind}") | fields}


def envoy_command(config: Path, *more: str) -> list[str]:
    return [str(find_envoy()), "-c", str(config), "--use-dynamic-base-id", "-l", "warning", *more]


def written(folder: Path, config: Node) -> Path:
    file = folder / "envoy.json"
    file.write_text(dump(json.loads(json.dumps(config))), encoding="utf-8")
    return file


def live(pipe: Path) -> Callable[[], bool]:
    return lambda: admin(pipe, "/ready").startswith("LIVE")

"""The compared variants, each an Envoy of its own with the same configuration, before one engine.

The engine is an Envoy too, which reads the body and answers at once: one in Python would cost more than what
is measured. It tells in response headers what it was sent, so that a variant that does not work is noticed.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from msgspec.structs import replace

from bench.bodies import PATH, Body
from bench.errors import CannotMeasure
from bench.noop_server import INSERTED
from bench.processes import Process, accepts, admin, free_port, running
from extproc.cli.envoy_binary import find_envoy
from extproc.deployment import static_plan, tcp
from extproc.resources.bootstrap import render
from extproc.resources.template import dump, load_template
from extproc.settings import Settings, load, merged

NONE, NOOP, OURS = "no ext_proc", "no-op", "ours"
NAMES = (NONE, NOOP, OURS)

FAILED_OPEN = "http.llm.ext_proc.failure_mode_allowed: "
"""Envoy's count of requests that went on although the sidecar failed: answered 200, and an error here."""

Node = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Variant:
    """A running variant."""

    name: str
    port: int
    envoy: Process
    sidecar: Process | None
    admin: Path

    def failed_open(self) -> int:
        page = admin(self.admin, "/stats?filter=ext_proc.failure_mode_allowed")
        counts = [line.removeprefix(FAILED_OPEN) for line in page.splitlines() if line.startswith(FAILED_OPEN)]
        return int(counts[0]) if counts else 0


@contextlib.contextmanager
def engine(folder: Path) -> Iterator[int]:
    """The engine's port while it runs."""
    folder.mkdir()
    port, pipe = free_port(), folder / "admin.sock"
    config = _written(folder, engine_config(port, pipe))
    with running("the engine", _envoy_command(config, "--concurrency", "1"), folder / "log", _live(pipe)):
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


@contextlib.contextmanager
def variant(name: str, folder: Path, engine_port: int, config: Path | None) -> Iterator[Variant]:
    """One variant, ready: `config` is laid over the shipped defaults as `extproc serve` does it."""
    folder.mkdir()
    file = folder / "extproc.yaml"
    file.write_text(config_text(engine_port, config))
    settings = load(file.read_bytes())
    with contextlib.ExitStack() as stack:
        sidecar = None
        if name != NONE:
            command = _ours_command(file, folder) if name == OURS else _noop_command(folder)
            socket = folder / settings.listeners.ext_proc.removeprefix("unix:")
            ready = lambda: accepts(socket)  # noqa: E731
            sidecar = stack.enter_context(running(f"sidecar ({name})", command, folder / "sidecar.log", ready))
        pipe = folder / settings.listeners.envoy_admin.removeprefix("unix:")
        bootstrap = _written(folder, envoy_config(settings, folder, judged=name != NONE))
        command = _envoy_command(bootstrap)
        envoy = stack.enter_context(running(f"Envoy ({name})", command, folder / "envoy.log", _live(pipe)))
        yield Variant(name, tcp(settings.listeners.envoy).port, envoy, sidecar, pipe)


def config_text(engine_port: int, over: Path | None) -> str:
    """One vLLM pool that schedules by priority, free ports; everything else as shipped, or as `over` says."""
    pool = {
        "name": "engine-1",
        "engine": "vllm",
        "endpoints": [f"http://127.0.0.1:{engine_port}"],
        "schedules_by_priority": True,
    }
    listeners = {"envoy": f"127.0.0.1:{free_port()}", "admin": f"127.0.0.1:{free_port()}"}
    base = yaml.safe_load(over.read_bytes()) if over else {}
    tree: Mapping[str, Any] = merged(base or {}, {"pools": [pool], "listeners": listeners})
    return yaml.safe_dump(dict(tree), allow_unicode=True)


def envoy_config(settings: Settings, folder: Path, *, judged: bool) -> Node:
    """What `extproc up` starts, with the access log off; not `judged` = no route turns the filter on."""
    config = render(load_template(), replace(static_plan(settings, folder), access_log_path="/dev/null"))
    if not judged:
        for route in routes(config):
            route.pop("typed_per_filter_config", None)
    return config


def routes(config: Node) -> Iterator[Node]:
    for listener in config["static_resources"]["listeners"]:
        for chain in listener["filter_chains"]:
            for each in chain["filters"]:
                for host in each["typed_config"].get("route_config", {}).get("virtual_hosts", ()):
                    yield from host["routes"]


def check(variant: Variant, body: Body) -> None:
    """Send one request; CannotMeasure where the engine did not get what this variant makes of it."""
    connection = http.client.HTTPConnection("127.0.0.1", variant.port, timeout=10)
    connection.request("POST", PATH, body.data, {"content-type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    length = int(answer.headers.get("x-seen-length") or -1)
    judged = (answer.headers.get("x-seen-params") or "-") != "-"
    growth = length - len(body.data)
    expected = {NONE: growth == 0, NOOP: growth == len(INSERTED) - 1, OURS: judged and growth != 0}
    if answer.status != 200 or not expected[variant.name]:
        raise CannotMeasure(f"{variant.name}: {body.label} came as {answer.status}, {growth:+} bytes, {judged=}")


def _ours_command(config: Path, folder: Path) -> list[str]:
    return [sys.executable, "-m", "extproc", "serve", "--config", str(config), "--state-dir", str(folder)]


def _noop_command(folder: Path) -> list[str]:
    return [sys.executable, "-m", "bench.noop_server", "--listen", f"unix:{folder / 'extproc.sock'}"]


def _envoy_command(config: Path, *more: str) -> list[str]:
    return [str(find_envoy()), "-c", str(config), "--use-dynamic-base-id", "-l", "warning", *more]


def _written(folder: Path, config: Node) -> Path:
    file = folder / "envoy.json"
    file.write_text(dump(json.loads(json.dumps(config))), encoding="utf-8")
    return file


def _live(pipe: Path) -> Callable[[], bool]:
    return lambda: admin(pipe, "/ready").startswith("LIVE")

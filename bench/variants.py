"""The compared variants, each an Envoy of its own with the same configuration, before one engine."""

from __future__ import annotations

import contextlib
import http.client
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from msgspec.structs import replace

from bench import native_server
from bench.bodies import PATH, Body
from bench.envoys import Node, envoy_command, live, written
from bench.errors import CannotMeasure
from bench.noop_server import INSERTED
from bench.processes import Process, accepts, admin, free_port, running
from bench.tree import pids
from extproc.deployment import ext_proc_listeners, static_plan, tcp
from extproc.resources.bootstrap import render
from extproc.resources.template import load_template
from extproc.settings import Settings, load, merged

NONE = "no ext_proc"
NATIVE = "no-op, native"
NOOP_GRPC, NOOP_FAST = "no-op, grpc.aio", "no-op, fast"
OURS_GRPC, OURS_FAST, OURS_TWO = "ours, grpc.aio", "ours, fast", "ours, fast, 2 workers"
OURS_INTENT = "ours, fast, intent"

FAILED_OPEN = "http.llm.ext_proc.failure_mode_allowed: "
"""Envoy's count of requests that went on although the sidecar failed: answered 200, and an error here."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What stands beside Envoy."""

    does: Literal["nothing", "no-op", "judges"]
    transport: Literal["fast", "grpc", "native"] = "fast"
    workers: int = 1
    intent: bool = False
    """Every request asks the intent model after the rules, whose verdict is one that a strict one overrules."""


KINDS: dict[str, Kind] = {
    NONE: Kind("nothing"),
    NATIVE: Kind("no-op", "native"),
    NOOP_GRPC: Kind("no-op", "grpc"),
    NOOP_FAST: Kind("no-op", "fast"),
    OURS_GRPC: Kind("judges", "grpc"),
    OURS_FAST: Kind("judges", "fast"),
    OURS_TWO: Kind("judges", "fast", workers=2),
    OURS_INTENT: Kind("judges", "fast", intent=True),
}
NAMES = tuple(KINDS)


@dataclass(frozen=True, slots=True)
class Variant:
    """A running variant. `sidecar_pids`: the process that was started and all it started itself."""

    name: str
    port: int
    envoy: Process
    sidecar: Process | None
    sidecar_pids: tuple[int, ...]
    admin: Path
    metrics: str

    def failed_open(self) -> int:
        page = admin(self.admin, "/stats?filter=ext_proc.failure_mode_allowed")
        counts = [line.removeprefix(FAILED_OPEN) for line in page.splitlines() if line.startswith(FAILED_OPEN)]
        return int(counts[0]) if counts else 0


@contextlib.contextmanager
def variant(name: str, folder: Path, engine_port: int, config: Path | None) -> Iterator[Variant]:
    """One variant, ready: `config` is laid over the shipped defaults as `extproc serve` does it."""
    folder.mkdir()
    file, kind = folder / "extproc.yaml", KINDS[name]
    file.write_text(config_text(engine_port, config, kind))
    settings = load(file.read_bytes())
    with contextlib.ExitStack() as stack:
        sidecar = None
        if kind.does != "nothing":
            sockets = [folder / each.removeprefix("unix:") for each in ext_proc_listeners(settings)]
            ready = lambda: all(map(accepts, sockets))  # noqa: E731
            command, log = _command(kind, file, folder), folder / "sidecar.log"
            sidecar = stack.enter_context(running(f"sidecar ({name})", command, log, ready))
        pipe = folder / settings.listeners.envoy_admin.removeprefix("unix:")
        bootstrap = written(folder, envoy_config(settings, folder, judged=kind.does != "nothing"))
        command = envoy_command(bootstrap)
        envoy = stack.enter_context(running(f"Envoy ({name})", command, folder / "envoy.log", live(pipe)))
        port, every = tcp(settings.listeners.envoy).port, pids(sidecar.pid) if sidecar else ()
        yield Variant(name, port, envoy, sidecar, every, pipe, f"http://{settings.listeners.admin}/metrics")


def _command(kind: Kind, config: Path, folder: Path) -> list[str]:
    address = f"unix:{folder / 'extproc.sock'}"
    if kind.does == "judges":
        return [sys.executable, "-m", "extproc", "serve", "--config", str(config), "--state-dir", str(folder)]
    if kind.transport != "native":
        return [sys.executable, "-m", "bench.noop_server", "--listen", address, "--transport", kind.transport]
    program = native_server.built(lambda _: None)
    if program is None:
        raise CannotMeasure("there is no compiler for the native no-op")
    return [str(program), address]


def config_text(engine_port: int, over: Path | None, kind: Kind = KINDS[OURS_FAST]) -> str:
    """One vLLM pool that schedules by priority, free ports, and how this kind talks; everything else as shipped, or
    as `over` says."""
    pool = {
        "name": "engine-1",
        "engine": "vllm",
        "endpoints": [f"http://127.0.0.1:{engine_port}"],
        "schedules_by_priority": True,
    }
    listeners = {"envoy": f"127.0.0.1:{free_port()}", "admin": f"127.0.0.1:{free_port()}"}
    transport = "grpc" if kind.transport == "grpc" else "fast"
    mine: dict[str, Any] = {
        "pools": [pool],
        "listeners": listeners,
        "transport": transport,
        "workers": kind.workers,
        "intent": {"enabled": kind.intent},
    }
    if kind.intent:
        rules = load(over.read_bytes() if over else b"{}").classify.rules
        mine["classify"] = {"rules": [{**rule.model_dump(mode="json"), "tier": "creative"} for rule in rules]}
    base = yaml.safe_load(over.read_bytes()) if over else {}
    tree: Mapping[str, Any] = merged(base or {}, mine)
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
    expected = {"nothing": growth == 0, "no-op": growth == len(INSERTED) - 1, "judges": judged and growth != 0}
    if answer.status != 200 or not expected[KINDS[variant.name].does]:
        raise CannotMeasure(f"{variant.name}: {body.label} came as {answer.status}, {growth:+} bytes, {judged=}")

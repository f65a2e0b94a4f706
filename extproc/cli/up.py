"""`extproc up`: sidecar, Envoy and an engine to talk to, in one command."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import uvloop

from extproc.app import Listening, Sidecar, state_directory
from extproc.cli import observability, processes
from extproc.cli.arguments import add_config, add_state_dir
from extproc.cli.engines import engine_argument, pools_of, standin_engines
from extproc.cli.envoy_binary import find_envoy
from extproc.cli.render import last_good, rendered, static
from extproc.cli.serve import adjusted
from extproc.cli.signals import stop_on_signals
from extproc.config_source import ConfigSource
from extproc.deployment import address, tcp, workers
from extproc.edge import log_lines
from extproc.edge.grpc_server import MAX_SOCKET_PATH, check_free, clear_stale
from extproc.errors import CannotStart
from extproc.model.names import Engine
from extproc.pools import Pool
from extproc.resources.plan import Pipe
from extproc.settings import Settings
from extproc.standin import metrics_page

log = logging.getLogger("extproc.up")

PROGRAM = (sys.executable, "-m", "extproc")

Engines = list[tuple[str, Engine]]


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser("up", help="run sidecar, Envoy and (without --engine) a stand-in engine")
    add_config(parser)
    add_state_dir(parser)
    parser.add_argument(
        "--engine",
        action="append",
        default=[],
        type=engine_argument,
        metavar="URL=KIND",
        help="put it in front of this engine (vllm, triton, llamacpp); repeatable",
    )
    parser.add_argument("--port", type=int, metavar="PORT", help="Envoy's listener (10000)")
    parser.add_argument("--admin-port", type=int, metavar="PORT", help="the sidecar's admin pages (9902)")
    parser.add_argument(
        "--observability",
        action="store_true",
        help="also Prometheus (9090) and Alertmanager (9093), with our rules",
    )
    parser.add_argument("--prometheus", default="127.0.0.1:9090", metavar="HOST:PORT", help="(127.0.0.1:9090)")
    parser.add_argument("--alertmanager", default="127.0.0.1:9093", metavar="HOST:PORT", help="(127.0.0.1:9093)")
    parser.add_argument("--alerts-to", default="", metavar="URL", help="a webhook that alerts are sent to")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    binary = find_envoy()
    state_dir = state_directory(arguments.state_dir)
    return uvloop.run(_up(arguments, binary, state_dir))


async def _up(arguments: argparse.Namespace, binary: Path, state_dir: Path) -> int:
    stop = stop_on_signals()
    async with AsyncExitStack() as stack:
        engines: Engines = arguments.engine
        configured = ConfigSource(arguments.config).settings.pools
        standin = not engines and not configured
        if standin:
            engines = standin_engines(await stack.enter_async_context(processes.standin()))
        source = ConfigSource(arguments.config, lambda given: with_engines(given, arguments, engines, standin))
        log_lines.configure(source.settings.logging.format)
        sidecar = Sidecar(source, state_dir)
        listening = await stack.enter_async_context(sidecar)
        running = await _workers(stack, sidecar, source.settings, state_dir, arguments.log_level)
        running["Envoy"] = await _envoy(stack, binary, source.settings, state_dir)
        seen = _addresses(arguments) if arguments.observability else None
        watching: Running = {}
        if seen is not None:
            watching = await stack.enter_async_context(observability.running(source.settings, seen, state_dir))
        print(banner(source.settings, listening, standin=standin, seen=seen), flush=True)
        return await _until(stop, running, watching)


def _addresses(arguments: argparse.Namespace) -> observability.Addresses:
    return observability.Addresses(arguments.prometheus, arguments.alertmanager, arguments.alerts_to)


Running = dict[str, asyncio.subprocess.Process]
"""By what they are called."""


async def _workers(
    stack: AsyncExitStack, sidecar: Sidecar, settings: Settings, state_dir: Path, log_level: str
) -> Running:
    """None, or one process that keeps them, when the first of them takes requests."""
    if (count := workers(settings)) == 1:
        return {}
    numbers = ("--count", str(count), "--grace", str(settings.shutdown_grace_s), "--parent", str(os.getpid()))
    command = (*PROGRAM, "--log-level", log_level, "workers", *numbers, "--state-dir", str(state_dir))
    process = await stack.enter_async_context(processes.child("workers", *command))
    served, ended = asyncio.Task(sidecar.served()), asyncio.Task(process.wait())
    await asyncio.wait({served, ended}, timeout=processes.READY_S, return_when=asyncio.FIRST_COMPLETED)
    for task in (served, ended):
        task.cancel()
    if process.returncode is not None:
        raise CannotStart(f"the workers ended with code {process.returncode}: their own lines above say why")
    if not served.done():
        raise CannotStart(f"no worker was ready within {processes.READY_S:g} s")
    return {"the process of the workers": process}


def with_engines(settings: Settings, arguments: argparse.Namespace, engines: Engines, standin: bool) -> Settings:
    """The settings with the command line's engines as pools. The stand-in takes a priority, so it is shown."""
    adapted = adjusted(settings, arguments)
    if not engines:
        return adapted
    page = f"{engines[0][0]}{metrics_page.PATH}" if standin else None
    return adapted.model_copy(update={"pools": pools_of(engines, by_priority=standin, metrics_url=page)})


async def _envoy(
    stack: AsyncExitStack, binary: Path, settings: Settings, state_dir: Path
) -> asyncio.subprocess.Process:
    listener = tcp(settings.listeners.envoy)
    check_free(listener.host, listener.port, "--port")
    admin = address(settings.listeners.envoy_admin, state_dir)
    if not isinstance(admin, Pipe):
        raise CannotStart("listeners.envoy_admin: `extproc up` needs unix:PATH here")
    if len(admin.path.encode()) > MAX_SOCKET_PATH:
        raise CannotStart(f"the socket path {admin.path} is too long: choose a shorter --state-dir")
    clear_stale(Path(admin.path))
    config = state_dir / "envoy.json"
    follows = settings.xds.enabled
    config.write_text(rendered(settings, state_dir) if follows else static(settings, state_dir), encoding="utf-8")
    if follows:  # what to start Envoy from where the sidecar is not there first
        (state_dir / "envoy-last-good.json").write_text(last_good(settings, state_dir), encoding="utf-8")
    return await stack.enter_async_context(processes.envoy(binary, config, Path(admin.path)))


async def _until(stop: asyncio.Event, running: Running, watching: Running) -> int:
    """0 when asked to stop; CannotStart where one that runs ends by itself. One that only watches is told, and
    missed by no request."""
    ended = {asyncio.Task(process.wait()): name for name, process in (running | watching).items()}
    asked = asyncio.Task(stop.wait())
    try:
        while True:
            done, _ = await asyncio.wait({asked, *ended}, return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set():
                return 0
            for task in done:
                name = ended.pop(task)
                if name in running:
                    raise CannotStart(f"{name} ended with code {running[name].returncode}")
                log.warning("%s ended with code %s; requests go on", name, watching[name].returncode)
    finally:
        for each in (asked, *ended):
            each.cancel()


EXAMPLES = (
    ("strict", "Where is my order #12345678? I paid $49.90"),
    ("normal", "What is the capital of France?"),
    ("creative", "Write a slogan for a coffee shop"),
)


def banner(
    settings: Settings, listening: Listening, *, standin: bool, seen: observability.Addresses | None = None
) -> str:
    """What listens where, and three curl lines that work."""
    base = f"http://{settings.listeners.envoy}"
    pools = [f"{pool.name:<9} {where(pool)} ({pool.engine.value})" for pool in settings.pools]
    lines = [f"Envoy     {base}", *(["stand-in engine:"] if standin else []), *pools]
    lines += [f"admin     http://{listening.admin}/", f"audit     {listening.audit}"]
    if seen is not None:
        lines += [f"Prometheus http://{seen.prometheus}/", f"alerts    http://{seen.alertmanager}/"]
    lines.append("")
    lines += [curl(base, settings, text) for _, text in EXAMPLES]
    return "\n".join([*lines, "", "Ctrl-C ends all of it."])


def where(pool: Pool) -> str:
    """A pool's endpoints, in short."""
    if pool.endpoints_dns is not None:
        return f"{pool.endpoints_dns.host}:{pool.endpoints_dns.http_port}"
    if pool.endpoints_file is not None:
        return pool.endpoints_file
    urls = [f"{'https' if each.tls else 'http'}://{each.key}" for each in pool.listed()]
    return urls[0] if len(urls) == 1 else f"{urls[0]} and {len(urls) - 1} more"


def curl(base: str, settings: Settings, text: str) -> str:
    """A curl line for the first engine's own API."""
    if settings.pools[0].engine is Engine.TRITON:
        body: dict[str, Any] = {"text_input": text}
        return f"curl -s {base}/v2/models/MODEL/generate -d '{json.dumps(body)}'"
    body = {"model": "demo", "messages": [{"role": "user", "content": text}]}
    return f"curl -s {base}/v1/chat/completions -H 'content-type: application/json' -d '{json.dumps(body)}'"

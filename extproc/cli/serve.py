"""`extproc serve`: the sidecar alone, for an Envoy that runs elsewhere."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvloop

from extproc.app import Listening, Sidecar, state_directory
from extproc.cli.arguments import add_config, add_state_dir
from extproc.cli.signals import stop_on_signals
from extproc.cli.supervise import Kept, keep
from extproc.cli.worker import kept
from extproc.config_source import ConfigSource
from extproc.deployment import workers
from extproc.edge import log_lines
from extproc.loops.tasks import beating
from extproc.settings import ListenersConfig, Settings, parsed


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser("serve", help="run the sidecar alone (unix socket or TCP)")
    add_config(parser)
    add_state_dir(parser)
    parser.add_argument("--listen", metavar="ADDRESS", help="unix:PATH or HOST:PORT (listeners.ext_proc)")
    parser.add_argument("--admin-port", type=int, metavar="PORT", help="(9902)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    source = ConfigSource(arguments.config, lambda settings: adjusted(settings, arguments))
    log_lines.configure(source.settings.logging.format)
    state_dir = state_directory(arguments.state_dir)
    count = workers(source.settings)
    if count == 1:
        return _alone(source, state_dir)
    # Workers end before the process that takes their records.
    control = Kept("the control process", lambda: _alone(source, state_dir, control.beat))
    return keep([kept(count, state_dir), [control]], source.settings.shutdown_grace_s)


def _alone(source: ConfigSource, state_dir: Path, beat: Callable[[], None] = lambda: None) -> int:
    """The control process, which without workers judges too. Where it is started again, what needs a restart stays
    as it was: the others go on by it."""
    uvloop.run(_serve(Sidecar(source, state_dir), beat))
    return 0


async def _serve(sidecar: Sidecar, beat: Callable[[], None]) -> None:
    stop = stop_on_signals()
    async with beating(beat), sidecar as listening:
        announce(listening)
        await stop.wait()


def adjusted(settings: Settings, arguments: argparse.Namespace) -> Settings:
    """The settings with what the command line says about listeners; ConfigError where that is no address."""
    known = settings.listeners
    listeners: dict[str, object] = known.model_dump()
    if getattr(arguments, "listen", None) is not None:
        listeners["ext_proc"] = arguments.listen
    if getattr(arguments, "admin_port", None) is not None:
        listeners["admin"] = f"{known.admin.rpartition(':')[0]}:{arguments.admin_port}"
    if getattr(arguments, "port", None) is not None:
        listeners["envoy"] = f"{known.envoy.rpartition(':')[0]}:{arguments.port}"
    return settings.model_copy(update={"listeners": parsed(ListenersConfig, listeners, at="listeners")})


def announce(listening: Listening) -> None:
    print(f"ext_proc  {listening.ext_proc}")
    print(f"control   {listening.control}")
    print(f"admin     http://{listening.admin}/")
    if listening.metrics:
        print(f"metrics   http://{listening.metrics}/metrics")
    print(f"audit     {listening.audit}", flush=True)

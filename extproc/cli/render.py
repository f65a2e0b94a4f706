"""`extproc envoy-config`: the Envoy bootstrap for a deployment of your own, from the same config."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from extproc.cli.arguments import add_config
from extproc.cli.engines import cluster
from extproc.cli.envoy_config import Pipe, Plan, Tcp, dump, load_template, render
from extproc.errors import CannotStart
from extproc.settings import Settings, load


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser("envoy-config", help="print the Envoy config for the pools of a config file")
    add_config(parser)
    parser.add_argument(
        "--state-dir", type=Path, default=Path("/run/extproc"), metavar="DIR", help="where sockets are"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    settings = load(arguments.config.read_bytes() if arguments.config else b"")
    print(rendered(settings, arguments.state_dir.absolute()), end="")
    return 0


def rendered(settings: Settings, state_dir: Path) -> str:
    """The bootstrap as text; CannotStart where the settings name no pool."""
    return dump(render(load_template(), plan(settings, state_dir)))


def plan(settings: Settings, state_dir: Path) -> Plan:
    if not settings.pools:
        raise CannotStart("the config names no pools, so there is nothing to route to")
    several = [pool.name for pool in settings.pools if len(pool.endpoints) > 1]
    if several:
        raise CannotStart(f"a static Envoy config has one endpoint a pool; too many in: {', '.join(several)}")
    return Plan(
        engines=tuple(cluster(pool) for pool in settings.pools),
        ext_proc=address(settings.listeners.ext_proc, state_dir),
        listener=tcp(settings.listeners.envoy),
        admin=address(settings.listeners.envoy_admin, state_dir),
        fail_open=settings.failure_mode == "open",
        unknown_paths=settings.unknown_paths,
        max_body_bytes=settings.limits.max_body_bytes,
        extra_paths=tuple(settings.extra_paths),
        # Also while no key is listed: keys may come with a reload, which Envoy does not see.
        extra_allowed_headers=(settings.tenants.key_header,),
    )


def tcp(text: str) -> Tcp:
    host, _, port = text.rpartition(":")
    return Tcp(host.strip("[]"), int(port))


def address(text: str, state_dir: Path) -> Tcp | Pipe:
    if text.startswith("unix:"):
        return Pipe(str(state_dir / text.removeprefix("unix:")))
    return tcp(text)

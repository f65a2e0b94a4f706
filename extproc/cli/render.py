"""`extproc envoy-config`: the Envoy bootstrap for a deployment of your own, from the same config."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import yaml

from extproc.cli.arguments import add_config
from extproc.cli.serve import adjusted
from extproc.deployment import plan, static_plan
from extproc.edge.xds_files import FOLDER
from extproc.resources.bootstrap import following, from_files, render
from extproc.resources.istio import Proxy, envoy_filter
from extproc.resources.template import copy, dump, load_overlay, load_template
from extproc.settings import Settings, load

JUDGED_PORT = 8000


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser("envoy-config", help="print the Envoy config for the pools of a config file")
    add_config(parser)
    parser.add_argument(
        "--state-dir", type=Path, default=Path("/run/extproc"), metavar="DIR", help="where sockets are"
    )
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--static", action="store_true", help="endpoints as configured, no control plane")
    kinds.add_argument(
        "--last-good", action="store_true", help="follows the files the sidecar keeps in the state dir"
    )
    kinds.add_argument(
        "--istio",
        type=Proxy,
        choices=list(Proxy),
        metavar="PROXY",
        help="an EnvoyFilter: for inbound or gateway proxies",
    )
    parser.add_argument(
        "--port", type=int, metavar="PORT", help="Envoy's listener (10000); --istio: the port that is judged (8000)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    settings = load(arguments.config.read_bytes() if arguments.config else b"")
    if arguments.istio is None:
        settings = adjusted(settings, arguments)
    state_dir = arguments.state_dir.absolute()
    if arguments.istio is not None:
        text = istio(
            settings, state_dir, arguments.istio, JUDGED_PORT if arguments.port is None else arguments.port
        )
    elif arguments.last_good:
        text = last_good(settings, state_dir)
    else:
        text = (
            static(settings, state_dir)
            if arguments.static or not settings.xds.enabled
            else rendered(settings, state_dir)
        )
    print(text, end="")
    return 0


def istio(settings: Settings, state_dir: Path, proxy: Proxy, port: int) -> str:
    """An EnvoyFilter as YAML, as people keep their manifests."""
    found = envoy_filter(load_template(), load_overlay(), plan(settings, state_dir, ()), proxy=proxy, port=port)
    return yaml.safe_dump(copy(found), sort_keys=False, width=120, allow_unicode=True)


def static(settings: Settings, state_dir: Path) -> str:
    """With endpoints as configured; CannotStart where the settings name no pool."""
    return dump(render(load_template(), static_plan(settings, state_dir)))


def rendered(settings: Settings, state_dir: Path) -> str:
    """A bootstrap that follows the control plane, wherever its pools are."""
    return dump(following(load_template(), load_overlay(), plan(settings, state_dir, ())))


def last_good(settings: Settings, state_dir: Path) -> str:
    """A bootstrap that follows the files the control plane keeps: serves without it, and with it."""
    overlay = load_overlay()
    return dump(from_files(load_template(), overlay, plan(settings, state_dir, ()), str(state_dir / FOLDER)))

"""`extproc envoy-config`: the Envoy bootstrap for a deployment of your own, from the same config."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from extproc.cli.arguments import add_config
from extproc.deployment import plan, static_plan
from extproc.edge.xds_files import FOLDER
from extproc.resources.bootstrap import following, from_files, render
from extproc.resources.template import dump, load_overlay, load_template
from extproc.settings import Settings, load


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
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    settings = load(arguments.config.read_bytes() if arguments.config else b"")
    state_dir = arguments.state_dir.absolute()
    if arguments.last_good:
        text = last_good(settings, state_dir)
    else:
        text = (
            static(settings, state_dir)
            if arguments.static or not settings.xds.enabled
            else rendered(settings, state_dir)
        )
    print(text, end="")
    return 0


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

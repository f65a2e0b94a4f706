"""`extproc params` and `extproc baseline`: what an operator changes in a running sidecar, over its own socket."""

from __future__ import annotations

import argparse
import json
from typing import Any

from extproc.cli import status
from extproc.cli.arguments import add_config, add_state_dir
from extproc.cli.asking import act, add_admin, admin_of, fetch


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    _add_params(commands.add_parser("params", help="list, activate or pin parameter sets"))
    baseline = commands.add_parser("baseline", help="what latencies are compared with")
    does = baseline.add_subparsers(dest="does", required=True, metavar="WHAT")
    freeze = does.add_parser("freeze", help="the active set proved itself: its latencies are the baseline")
    add_state_dir(freeze)
    freeze.set_defaults(run=_freeze)


def _add_params(params: argparse.ArgumentParser) -> None:
    does = params.add_subparsers(dest="does", required=True, metavar="WHAT")
    listed = does.add_parser("list", help="every set that is kept, and what was done to them")
    add_config(listed)
    add_admin(listed)
    listed.add_argument("--json", action="store_true", help="as JSON")
    listed.set_defaults(run=_list)
    activate = does.add_parser("activate", help="put a set in force, also a refused one")
    activate.add_argument("version", metavar="VERSION", help="its first digits are enough")
    add_state_dir(activate)
    activate.set_defaults(run=_activate)
    for name, text in (("pin", "keep the active set, whatever happens"), ("unpin", "let it change again")):
        pin = does.add_parser(name, help=text)
        add_state_dir(pin)
        pin.set_defaults(run=_pin, path=f"/params/{name}")


def _list(arguments: argparse.Namespace) -> int:
    found = fetch(admin_of(arguments), "/status", "parameters")["parameters"]
    if arguments.json:
        print(json.dumps(found, indent=2))
    else:
        status.console_of().print(status.sets(found), status.records(found))
    return 0


def _activate(arguments: argparse.Namespace) -> int:
    found = act(arguments.state_dir, "/params/activate", version=arguments.version)
    print(f"active: {found['active']}")
    return 0


def _pin(arguments: argparse.Namespace) -> int:
    found = act(arguments.state_dir, arguments.path)
    print(f"active: {found['active']}, {'pinned' if found['pinned'] else 'not pinned'}")
    return 0


def _freeze(arguments: argparse.Namespace) -> int:
    found = act(arguments.state_dir, "/baseline/freeze")
    print(f"baseline of {found['parameter_set']}: {found['frozen']} requests")
    return 0

"""Arguments to subcommands; every expected failure is one line on stderr and an exit code."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence

from extproc import __version__
from extproc.cli import (
    alert_rules,
    check,
    dashboards,
    explain,
    intent,
    operate,
    reference,
    render,
    serve,
    status,
    up,
    weights,
    worker,
)
from extproc.cli.outcome import outcome

COMMANDS = (
    *(up, serve, check, explain, status, weights, operate, intent),
    *(render, alert_rules, dashboards, reference, worker),
)


def main(argv: Sequence[str]) -> int:
    """Run one subcommand; its exit code."""
    arguments = _parser().parse_args(argv)
    logging.basicConfig(
        level=arguments.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    logging.getLogger("watchfiles").setLevel(logging.WARNING)  # it tells every change of every neighbour
    return outcome(lambda: arguments.run(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="extproc", description="Envoy sidecar for LLM requests.")
    parser.add_argument("--version", action="version", version=f"extproc {__version__}")
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"), help="(info)")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in COMMANDS:
        module.add_to(commands)
    return parser

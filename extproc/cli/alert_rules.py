"""`extproc alert-rules`: recording and alert rules for Prometheus, with the thresholds of the config."""

from __future__ import annotations

import argparse
from typing import Any

import yaml

from extproc import alerts
from extproc.cli.arguments import add_config
from extproc.config_source import ConfigSource

HEAD = "# Made by `extproc alert-rules`; thresholds are those of the config (alerts).\n"


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser("alert-rules", help="print Prometheus rules with the config's thresholds")
    add_config(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    print(text(ConfigSource(arguments.config).settings.alerts), end="")
    return 0


def text(config: alerts.AlertsConfig) -> str:
    return HEAD + yaml.safe_dump(alerts.groups(config), sort_keys=False, width=110, allow_unicode=True)

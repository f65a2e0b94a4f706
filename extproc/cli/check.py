"""`extproc check FILE`: every mistake of a config, each with its path."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from extproc.edge import secrets
from extproc.errors import ConfigError, Problem
from extproc.settings import Settings, load


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser("check", help="validate a config file and print every mistake")
    parser.add_argument("file", type=Path)
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.set_defaults(run=run)


def missing_secrets(settings: Settings) -> tuple[Problem, ...]:
    """What `serve` would refuse to start with, here and now: a file can be right on another machine."""
    try:
        secrets.read(settings)
    except ConfigError as error:
        return error.problems
    return ()


def run(arguments: argparse.Namespace) -> int:
    """0 where the file is right; ConfigError is the caller's to print."""
    try:
        settings = load(arguments.file.read_bytes())
    except ConfigError as error:
        if not arguments.json:
            raise
        problems = [{"path": problem.path, "message": problem.message} for problem in error.problems]
        print(json.dumps({"valid": False, "problems": problems}))
        return 2
    label = settings.parameters().label()
    for note in missing_secrets(settings):
        print(f"extproc: not set on this machine: {note}", file=sys.stderr)
    if arguments.json:
        print(json.dumps({"valid": True, "parameter_set": label}))
    else:
        print(f"{arguments.file}: valid, parameter set {label}")
    return 0

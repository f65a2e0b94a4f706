"""`extproc check FILE`: every mistake of a config, each with its path."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from extproc import intent_model
from extproc.cli.outcome import WRONG
from extproc.edge import secrets
from extproc.errors import ConfigError, Problem
from extproc.settings import Settings, load


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser("check", help="validate a config file and print every mistake")
    parser.add_argument("file", type=Path)
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.set_defaults(run=run)


def missing(settings: Settings) -> Iterator[Problem]:
    """What `serve` would refuse to start with, here and now: a file can be right on another machine."""
    for read in (secrets.read, lambda given: intent_model.read(given.intent)):
        try:
            read(settings)
        except ConfigError as error:
            yield from error.problems


def run(arguments: argparse.Namespace) -> int:
    """0 where the file is right, 2 where it is not."""
    try:
        settings = load(arguments.file.read_bytes())
    except ConfigError as error:
        if arguments.json:
            problems = [{"path": problem.path, "message": problem.message} for problem in error.problems]
            print(json.dumps({"valid": False, "problems": problems}))
        else:
            print(*(f"{arguments.file}: {problem}" for problem in error.problems), sep="\n", file=sys.stderr)
        return WRONG
    label = settings.parameters().label()
    for note in missing(settings):
        print(f"{arguments.file}: not on this machine: {note}", file=sys.stderr)
    if arguments.json:
        print(json.dumps({"valid": True, "parameter_set": label}))
    else:
        print(f"{arguments.file}: valid, parameter set {label}")
    return 0

"""Arguments several subcommands share."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="laid over the shipped extproc.yaml")


def add_state_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state-dir", type=Path, default=Path(".extproc"), metavar="DIR", help="sockets, audit (.extproc)"
    )

"""Data-plane processes: forked by `serve`, or for `up` by `extproc workers`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvloop

from extproc.cli.arguments import add_state_dir
from extproc.cli.signals import stop_on_signals
from extproc.cli.supervise import Kept, end_with, keep
from extproc.loops.tasks import beating
from extproc.worker import Worker


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser("workers")  # without help: nobody starts it by hand
    add_state_dir(parser)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--grace", type=float, required=True, metavar="S")
    parser.add_argument("--parent", type=int, required=True, metavar="PID", help="ends with it")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    end_with(arguments.parent)
    return keep([kept(arguments.count, arguments.state_dir.resolve())], arguments.grace)


def kept(count: int, state_dir: Path) -> list[Kept]:
    return [_kept(number, state_dir) for number in range(1, count + 1)]


def _kept(number: int, state_dir: Path) -> Kept:
    found = Kept(f"worker {number}", lambda: _work(number, state_dir, found.beat))
    return found


def _work(number: int, state_dir: Path, beat: Callable[[], None]) -> int:
    uvloop.run(_run(Worker(number, state_dir), beat))
    return 0


async def _run(worker: Worker, beat: Callable[[], None]) -> None:
    async with beating(beat):
        await worker.run(stop_on_signals())

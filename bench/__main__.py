"""`python -m bench`: the sidecar against a no-op and against none, its steps, and a soak."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from bench import load, report
from bench.compare import Plan, compare
from bench.errors import CannotMeasure
from bench.micro import micro
from bench.soak import soak
from extproc.errors import ConfigError, ExtprocError

FULL = Plan(rounds=7, seconds=0.8)
QUICK = Plan(rounds=2, seconds=0.5)
SOAK_REQUESTS = 200_000


def main(argv: Sequence[str]) -> int:
    arguments = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unlike the default, it ends the children too
    try:
        load.program()
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            results = _measured(arguments, Path(folder))
    except (CannotMeasure, ExtprocError) as error:
        lines = error.problems if isinstance(error, ConfigError) else (error,)
        for line in lines:
            print(f"bench: {line}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(report.text(results))
    if arguments.json:
        arguments.json.write_text(json.dumps(report.tree(results), indent=1, ensure_ascii=False) + "\n")
    return 0 if results.good else 1


def _measured(arguments: argparse.Namespace, folder: Path) -> report.Results:
    say = _teller()
    plan = QUICK if arguments.quick else FULL
    plan = replace(plan, rounds=arguments.rounds or plan.rounds)
    requests = arguments.soak if arguments.soak is not None else (0 if arguments.quick else SOAK_REQUESTS)
    rooms = [folder / name for name in ("compare", "micro", "soak")]
    for room in rooms:
        room.mkdir()
    return report.Results(
        measured=compare(plan, rooms[0], arguments.config, say),
        steps=micro(plan.bodies, rooms[1], arguments.config, say),
        soak=soak(requests, rooms[2], arguments.config, say) if requests else None,
    )


def _teller() -> Callable[[str], None]:
    started = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - started:4.0f} s  {what}", file=sys.stderr, flush=True)

    return say


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="under a minute: two short rounds, no soak")
    parser.add_argument("--rounds", type=int, metavar="N", help=f"({FULL.rounds}; quick: {QUICK.rounds})")
    parser.add_argument("--soak", type=int, metavar="N", help=f"requests, 0 = none ({SOAK_REQUESTS:,}; quick: 0)")
    parser.add_argument("--config", type=Path, metavar="FILE", help="laid over the shipped extproc.yaml")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every round's figures there")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`python -m bench`: the sidecar against no-ops and against none, its steps, and a soak."""

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

from bench import baseline, load, native_server, report
from bench.compare import Plan, compare
from bench.errors import CannotMeasure
from bench.micro import micro
from bench.profile import profile
from bench.ratios import answers
from bench.soak import soaks
from bench.variants import NATIVE, NONE, NOOP_GRPC, OURS_FAST
from extproc.errors import ConfigError, ExtprocError

FULL = Plan(rounds=7, seconds=0.8)
QUICK = Plan(rounds=2, seconds=0.5, bodies=("2 KB",), variants=(NONE, NATIVE, NOOP_GRPC, OURS_FAST))
SOAK_REQUESTS = 200_000
PROFILE_S = 8


def main(argv: Sequence[str]) -> int:
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.quick and arguments.write_baseline:
        parser.error("a baseline is of all variants and sizes: not with --quick")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unlike the default, it ends the children too
    try:
        load.program()
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            return _run(arguments, Path(folder))
    except (CannotMeasure, ExtprocError) as error:
        lines = error.problems if isinstance(error, ConfigError) else (error,)
        for line in lines:
            print(f"bench: {line}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _run(arguments: argparse.Namespace, folder: Path) -> int:
    say = _teller()
    if arguments.profile:
        print(profile(arguments.profile, PROFILE_S, folder, arguments.config, say))
        return 0
    plan = _plan(arguments, say)
    results = _measured(arguments, plan, folder, say)
    found = answers(results.measured)
    print(f"{report.text(results)}\n\n{baseline.told(found, baseline.read())}")
    if arguments.write_baseline:
        baseline.write(found, plan.rounds)
    if arguments.json:
        arguments.json.write_text(json.dumps(report.tree(results), indent=1, ensure_ascii=False) + "\n")
    return 0 if results.good else 1


def _plan(arguments: argparse.Namespace, say: Callable[[str], None]) -> Plan:
    """Without a compiler the native no-op is left out."""
    plan = QUICK if arguments.quick else FULL
    known = plan.variants if native_server.built(say) else tuple(n for n in plan.variants if n != NATIVE)
    return replace(plan, rounds=arguments.rounds or plan.rounds, variants=known)


def _measured(
    arguments: argparse.Namespace, plan: Plan, folder: Path, say: Callable[[str], None]
) -> report.Results:
    requests = arguments.soak if arguments.soak is not None else (0 if arguments.quick else SOAK_REQUESTS)
    rooms = [folder / name for name in ("compare", "micro", "soak")]
    for room in rooms:
        room.mkdir()
    return report.Results(
        measured=compare(plan, rooms[0], arguments.config, say),
        steps=micro(plan.bodies, rooms[1], arguments.config, say),
        soaks=tuple(soaks(requests, rooms[2], arguments.config, say)) if requests else (),
    )


def _teller() -> Callable[[str], None]:
    started = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - started:4.0f} s  {what}", file=sys.stderr, flush=True)

    return say


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="under a minute: 2 KB, four variants, short rounds, no soak")
    add("--rounds", type=int, metavar="N", help=f"({FULL.rounds}; quick: {QUICK.rounds})")
    add("--soak", type=int, metavar="N", help=f"requests a variant, 0 = none ({SOAK_REQUESTS:,}; quick: 0)")
    add("--config", type=Path, metavar="FILE", help="laid over the shipped extproc.yaml")
    add("--json", type=Path, metavar="FILE", help="write every round's figures there")
    add("--write-baseline", action="store_true", help=f"make this run's ratios the ones of {baseline.FILE.name}")
    add("--profile", type=Path, metavar="FILE.svg", help="only this: a flame graph under load, instruction counts")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

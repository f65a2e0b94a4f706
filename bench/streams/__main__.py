"""`python -m bench.streams`: event spacing of many slow streams, with the sidecar and without it."""

from __future__ import annotations

import argparse
import json
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.errors import CannotMeasure
from bench.streams import report
from bench.streams.measure import Plan, Say, measure
from extproc.errors import ExtprocError

SPARE_FILES = 500
"""Beside two per stream: in Envoy, and in engine and client for two variants."""


def main(argv: Sequence[str]) -> int:
    plan, file = _wanted(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unlike the default, it ends the children too
    try:
        _raise_open_files(2 * plan.streams + SPARE_FILES)
        with tempfile.TemporaryDirectory(prefix="bs-") as folder:
            results = measure(plan, Path(folder), _teller())
    except (CannotMeasure, ExtprocError) as error:
        print(f"bench.streams: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(report.text(plan, results))
    if file:
        file.write_text(json.dumps(report.tree(plan, results), indent=1, ensure_ascii=False) + "\n")
    return 0 if report.good(results) else 1


def _raise_open_files(needed: int) -> None:
    """For the children, as far as the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise CannotMeasure(f"it takes {needed:,} open files per process; ulimit -Hn says {hard:,}")


def _teller() -> Say:
    started = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - started:4.0f} s  {what}", file=sys.stderr, flush=True)

    return say


def _wanted(argv: Sequence[str]) -> tuple[Plan, Path | None]:
    usual = Plan()
    parser = argparse.ArgumentParser(prog="python -m bench.streams", description=__doc__)
    parser.add_argument("--streams", type=int, default=usual.streams, metavar="N", help="per variant (%(default)s)")
    parser.add_argument("--seconds", type=float, default=usual.seconds, help="length of a stream (%(default)s)")
    parser.add_argument("--rate", type=float, default=usual.rate, help="events a second (%(default)s)")
    parser.add_argument("--spread", type=float, default=usual.spread_s, help="s of starting (%(default)s)")
    parser.add_argument("--apart", action="store_true", help="one variant after the other, not at the same time")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    given = parser.parse_args(argv)
    if min(given.streams, given.seconds, given.rate) <= 0 or given.spread < 0:
        parser.error("streams, seconds and rate are more than 0, spread is not less")
    return Plan(given.streams, given.seconds, given.rate, given.spread, given.apart), given.json


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

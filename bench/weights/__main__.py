"""`python -m bench.weights`: weights against round robin and least request, on the real Envoy."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from bench.errors import CannotMeasure
from bench.weights import report, scenario
from bench.weights.envoy import NAMES
from bench.weights.measure import Run, run
from bench.weights.picture import svg
from bench.weights.scenario import Case, Scenario
from bench.weights.work import work
from extproc.errors import ExtprocError

QUICK_S = 40.0


def main(argv: Sequence[str]) -> int:
    arguments = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unlike the default, it ends the children too
    try:
        wanted = _scenario(arguments)
        with tempfile.TemporaryDirectory(prefix="bw-") as folder:
            for case in wanted.cases:
                work(wanted, case, case.seed)  # a missing trace is told before an hour of measuring
            runs = []
            for each in _runs(arguments, wanted, Path(folder)):
                runs.append(each)
                if arguments.json:
                    _write(arguments.json, runs)
    except (CannotMeasure, ExtprocError) as error:
        print(f"bench.weights: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(report.text(runs))
    if arguments.picture:
        arguments.picture.write_text(svg(runs[0]))
    return 0 if report.good(runs) else 1


def _write(file: Path, runs: Sequence[Run]) -> None:
    """After each run, so that one that is stopped leaves what it has."""
    file.write_text(json.dumps(report.tree(runs), indent=1, ensure_ascii=False) + "\n")


def _scenario(arguments: argparse.Namespace) -> Scenario:
    """What the file says, and the command line over it."""
    found = scenario.load(arguments.scenario)
    seconds = arguments.seconds or (QUICK_S if arguments.quick else found.seconds)
    runs = arguments.runs or (1 if arguments.quick else found.runs)
    cases = [each for each in found.cases if not arguments.case or each.name in arguments.case]
    if not cases:
        raise CannotMeasure(f"no such case; there are: {', '.join(each.name for each in found.cases)}")
    cases = cases[:1] if arguments.quick and not arguments.case else cases
    shift = arguments.seed or 0
    cases = [msgspec.structs.replace(each, seed=each.seed + shift) for each in cases]
    return msgspec.structs.replace(found, seconds=seconds, runs=runs, cases=tuple(cases))


def _runs(arguments: argparse.Namespace, wanted: Scenario, folder: Path) -> Iterator[Run]:
    """All variants at the same time, or one after the other as one run."""
    begun, number = time.monotonic(), 0
    groups = [[name] for name in NAMES] if arguments.interleave else [list(NAMES)]
    for case in wanted.cases:
        for index in range(wanted.runs):
            seed = case.seed + 10_000 * index
            found = []
            for names in groups:
                number += 1
                print(
                    f"{time.monotonic() - begun:5.0f} s  {case.name}, seed {seed}: {', '.join(names)}",
                    file=sys.stderr,
                )
                found.append(_run(wanted, case, seed, names, folder / str(number)))
            yield together(found)


def _run(wanted: Scenario, case: Case, seed: int, names: Sequence[str], room: Path) -> Run:
    """Once more where a busy minute kept the servers from starting: an hour's other runs are not lost by it."""
    try:
        return run(wanted, case, seed=seed, names=names, folder=room)
    except CannotMeasure as error:
        print(f"        once more: {error}", file=sys.stderr)
        return run(wanted, case, seed=seed, names=names, folder=room.with_name(f"{room.name}b"))


def together(parts: Sequence[Run]) -> Run:
    """Runs of one work with different variants as one; CPU as that of the busiest."""
    whole = parts[-1]
    return msgspec.structs.replace(
        whole,
        seen={name: seen for part in parts for name, seen in part.seen.items()},
        degraded={name: port for part in parts for name, port in part.degraded.items()},
        weights=[each for part in parts for each in part.weights],
        pushes=sum(part.pushes for part in parts),
        cpu={name: max(part.cpu.get(name, 0.0) for part in parts) for name in whole.cpu},
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.weights", description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"one case, one run of {QUICK_S:g} s")
    parser.add_argument("--seconds", type=float, metavar="S", help="of a run; half of it degraded")
    parser.add_argument("--runs", type=int, metavar="N", help="of each case, each with a seed of its own")
    parser.add_argument("--seed", type=int, metavar="N", help="added to the scenario's")
    parser.add_argument("--case", action="append", metavar="NAME", help="only this one (repeat for more)")
    parser.add_argument("--scenario", type=Path, default=scenario.FILE, metavar="FILE")
    parser.add_argument(
        "--interleave", action="store_true", help="variants one after the other, for a busy machine"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every run's figures there")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="write the first run as SVG there")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`python -m bench.intent`: how long the intent model takes, by length of the text.

Texts are pieces of the project's own utterances, each read once: what is read again and again would be in the
processor's caches. The time of the calling thread on a quiet machine; on a busy one p99 is that of the scheduler.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from extproc import intent_model
from extproc.request.classify.weights import Weights, decode
from extproc.settings import Reading, classifiers, load
from extproc.snapshot import Classifier
from extproc.training import utterances
from extproc.training.examine import NOBODY, Said
from extproc.training.rows import label_map

LENGTHS = (20, 200, 2_000, 20_000)
TEXTS = 8_000
ROUNDS = 8
"""All lengths one after the other, so often: a busy half second of the machine is then nobody's alone."""

WARM_UP = 200
TARGETS = {(200, "p50"): 60.0, (20_000, "p99"): 1_000.0}
"""Microseconds, by length and percentile."""


def pieces(source: str, length: int, count: int, seed: int) -> list[str]:
    """Cut at random places; `source` is repeated where it is too short."""
    source *= -(-(length + 1) // len(source))
    chance = random.Random(seed)
    starts = [chance.randrange(len(source) - length) for _ in range(count)]
    return [source[start : start + length] for start in starts]


def timed(classifier: Classifier, texts: Sequence[str]) -> list[float]:
    """Microseconds of each, after a warm-up."""
    took = []
    for text in texts:
        said = Said(text)
        begun = time.perf_counter()
        classifier(said, NOBODY)
        took.append((time.perf_counter() - begun) * 1e6)
    return took[WARM_UP:]


def rows(weights: Weights, count: int) -> list[dict[str, Any]]:
    settings = load("")
    classifier = classifiers(settings, Reading(weights, timer=time.perf_counter))[-1]
    own = utterances.rows(label_map(settings), seed=1)
    sources = {
        language: "; ".join(row.text for row in own if row.language == language) for language in ("en", "zh")
    }
    took: dict[tuple[str, int], list[float]] = {(name, length): [] for name in sources for length in LENGTHS}
    each = -(-count // ROUNDS)
    for number in range(ROUNDS):
        for (language, length), known in took.items():
            known.extend(timed(classifier, pieces(sources[language], length, each + WARM_UP, seed=length + number)))
    return [
        {"language": language, "chars": length, "p50_us": _at(known, 50), "p99_us": _at(known, 99)}
        for (language, length), known in took.items()
    ]


def _at(took: list[float], percent: int) -> float:
    return sorted(took)[len(took) * percent // 100]


def met(row: dict[str, Any]) -> str:
    bounds = [(name, bound) for (length, name), bound in TARGETS.items() if length == row["chars"]]
    said = [f"{name} <= {bound:,.0f} {'met' if row[f'{name}_us'] <= bound else 'MISSED'}" for name, bound in bounds]
    return ", ".join(said) or "–"


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.intent", description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, metavar="FILE", help="an .npz (the shipped one)")
    parser.add_argument("--texts", type=int, default=TEXTS, metavar="N", help=f"of each length ({TEXTS:,})")
    parser.add_argument("--json", action="store_true", help="for machines")
    arguments = parser.parse_args(argv)
    weights = decode(arguments.model.read_bytes() if arguments.model else intent_model.shipped())
    print("reading texts", file=sys.stderr)
    found = rows(weights, arguments.texts)
    if arguments.json:
        print(json.dumps(found, indent=1))
        return 0
    table = Table(title="the intent model, µs a text")
    for column in ("language", "characters", "p50", "p99", "target"):
        table.add_column(column, justify="left" if column in ("language", "target") else "right")
    for row in found:
        cells = (row["language"], f"{row['chars']:,}", f"{row['p50_us']:.0f}", f"{row['p99_us']:.0f}", met(row))
        table.add_row(*cells)
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

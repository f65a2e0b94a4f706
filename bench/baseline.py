"""Ratios as they were when somebody last looked at them: a later run tells which have become worse.

Only ratios, which are alike on other machines; and only a warning, as noise of a machine is no defect.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.ratios import Answer

FILE = Path(__file__).resolve().parent / "baseline.json"

LEAST_NOISE = 0.1
"""Of a ratio: what few rounds in one hour do not show of another hour or machine."""

Key = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Known:
    """`noise`: how far the median may be above and still be the same."""

    median: float
    noise: float


def tree(answers: Sequence[Answer], rounds: int) -> dict[str, Any]:
    ratios = [
        {
            "figure": each.what,
            "body": each.body,
            "connections": each.connections,
            "median": round(each.median, 3),
            "min": round(each.least, 3),
            "max": round(each.most, 3),
            "noise": round(_noise(each), 3),
        }
        for each in answers
        if each.relative
    ]
    return {"rounds": rounds, "ratios": ratios}


def _noise(found: Answer) -> float:
    return max(found.most - found.median, found.median - found.least, LEAST_NOISE * found.median)


def write(answers: Sequence[Answer], rounds: int, file: Path = FILE) -> None:
    file.write_text(json.dumps(tree(answers, rounds), indent=1) + "\n")


def read(file: Path = FILE) -> dict[Key, Known]:
    if not file.is_file():
        return {}
    known = json.loads(file.read_text())["ratios"]
    return {
        (each["figure"], each["body"], each["connections"]): Known(each["median"], each["noise"]) for each in known
    }


def told(answers: Sequence[Answer], known: dict[Key, Known]) -> str:
    """What a run makes of it, for people."""
    compared = [
        (each, before)
        for each in answers
        if each.relative and (before := known.get((each.what, each.body, each.connections)))
    ]
    worse = [
        f"WORSE than the baseline: {each.what}, {each.body}, {each.connections} conn.: "
        f"{each.median:.2f}, was {before.median:.2f}, noise {before.noise:.2f}"
        for each, before in compared
        if each.median > before.median + before.noise
    ]
    return "\n".join(worse or [f"Baseline: none of {len(compared)} ratios is worse by more than its noise"])

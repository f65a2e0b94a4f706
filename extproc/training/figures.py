"""How good verdicts are: accuracy, recall and precision per class, confusion, calibration, coverage, macro-F1.

Pure: arrays in, values out. Tiers are numbered as in `TIERS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from extproc.model.names import Tier

TIERS = tuple(Tier)

BINS = 15
"""Of the expected calibration error (Guo et al. 2017), of equal width."""


class OfClass(Struct, frozen=True):
    """None where nothing is of the class, or nothing was told to be. `rows` are truly of it."""

    name: str
    rows: int
    recall: float | None
    precision: float | None


class Bin(Struct, frozen=True):
    """Verdicts of about one confidence: how many, how confident on average, how often right."""

    rows: int
    confidence: float
    right: float


class Figures(Struct, frozen=True):
    """Of one set of rows. `confusion` [true][told]. `ece` and `coverage` (share whose confidence is at least the
    minimum) are None where the verdicts have no confidence.
    """

    rows: int
    accuracy: float
    classes: tuple[OfClass, ...]
    confusion: tuple[tuple[int, ...], ...]
    ece: float | None = None
    coverage: float | None = None
    bins: tuple[Bin, ...] = ()

    def of(self, name: str) -> OfClass:
        return next(each for each in self.classes if each.name == name)


def figures(
    truth: Any, told: Any, names: Sequence[str], *, confidence: Any = None, minimum: float = 0.8
) -> Figures:
    """`truth`, `told` (n,) numbers of `names`; `confidence` (n,) in [0, 1]."""
    count = len(names)
    confusion = np.bincount(truth * count + told, minlength=count * count).reshape(count, count)
    bins = () if confidence is None else reliability(confidence, truth == told)
    rows = len(truth)
    return Figures(
        rows=rows,
        accuracy=float(np.mean(truth == told)) if rows else 0.0,
        classes=tuple(_of_class(name, number, confusion) for number, name in enumerate(names)),
        confusion=tuple(tuple(int(each) for each in row) for row in confusion),
        ece=None if confidence is None else calibration_error(bins),
        coverage=None if confidence is None or not rows else float(np.mean(confidence >= minimum)),
        bins=bins,
    )


def _of_class(name: str, number: int, confusion: Any) -> OfClass:
    right, there, said = confusion[number, number], confusion[number].sum(), confusion[:, number].sum()
    return OfClass(name, int(there), float(right / there) if there else None, float(right / said) if said else None)


def reliability(confidence: Any, right: Any) -> tuple[Bin, ...]:
    """Bins that hold anything, by rising confidence."""
    numbers = np.minimum((confidence * BINS).astype(int), BINS - 1)
    return tuple(
        Bin(int(here.sum()), float(confidence[here].mean()), float(right[here].mean()))
        for here in (numbers == number for number in range(BINS))
        if here.any()
    )


def calibration_error(bins: Sequence[Bin]) -> float:
    rows = sum(each.rows for each in bins)
    return sum(each.rows * abs(each.confidence - each.right) for each in bins) / rows if rows else 0.0


def macro_f1(truth: Sequence[str], told: Sequence[str]) -> tuple[float, dict[str, float]]:
    """Over the classes that are in `truth`: the mean of their F1, and each."""
    scores = {}
    for name in sorted(set(truth)):
        right = sum(a == name == b for a, b in zip(truth, told, strict=True))
        total = sum(each == name for each in truth) + sum(each == name for each in told)
        scores[name] = 2 * right / total
    return sum(scores.values()) / len(scores), scores

"""Figures as tables for people, and as a tree for machines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import sqrt
from typing import Any

import msgspec
from rich.box import SIMPLE_HEAD
from rich.table import Table

from extproc.training.examine import Part, Scenarios
from extproc.training.figures import TIERS, Figures, OfClass

NARROW = 2000
"""Rows from which on accuracy is known to about a percent."""


WIDE = 116
"""Columns of a terminal that hold the whole table."""


def told(parts: Sequence[Part], width: int = WIDE) -> Table:
    """One line per language and source: the most likely tier, and the tier after the fallback. On a narrow terminal
    without the tiers but strict: the confusions tell them."""
    title = "most likely tier, recall/precision in %; after: with the fallback to the default"
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("", "source"):
        table.add_column(column, overflow="fold")
    names = ("rows", "right", *(tier.value for tier in TIERS), "ECE", "sure", "after", "strict")
    shown = [at for at, name in enumerate(names) if width >= WIDE or name not in ("normal", "creative")]
    for at in shown:
        table.add_column(names[at], justify="right", no_wrap=True)
    for part in parts:
        cells = (*_cells(part.likely), *_cells_after(part.after))
        table.add_row(part.language, part.source or "all", *(cells[at] for at in shown))
    return table


def _cells(found: Figures) -> list[str]:
    return [
        f"{found.rows:,}",
        f"{100 * found.accuracy:.2f}",
        *(_pair(each) for each in found.classes),
        "-" if found.ece is None else f"{found.ece:.3f}",
        "-" if found.coverage is None else f"{100 * found.coverage:.1f}",
    ]


def _cells_after(found: Figures) -> list[str]:
    return [f"{100 * found.accuracy:.2f}", _pair(found.of("strict"))]


def _pair(found: OfClass) -> str:
    if not found.rows:
        return "-"
    return f"{_share(found.recall)}/{_share(found.precision)}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def by_licence(found: Iterable[tuple[str, Figures]]) -> Table:
    table = Table(title="rows whose weights may be given away: most likely tier")
    for column in ("language", "rows", "accuracy", *(tier.value for tier in TIERS)):
        table.add_column(column, justify="left" if column == "language" else "right")
    for language, figures in found:
        table.add_row(language, *_cells(figures)[: 2 + len(TIERS)])
    return table


def confusions(parts: Iterable[Part]) -> list[Table]:
    """Of each language as a whole."""
    return [_confusion(part.language, part.likely) for part in parts if not part.source]


def _confusion(title: str, figures: Figures) -> Table:
    names = [each.name for each in figures.classes]
    table = Table(title=f"{title}: rows are true, columns told")
    table.add_column("")
    for name in names:
        table.add_column(name, justify="right")
    for name, counts in zip(names, figures.confusion, strict=True):
        table.add_row(name, *(f"{count:,}" for count in counts))
    return table


def of_scenarios(found: Sequence[Scenarios]) -> Table:
    table = Table(title="scenarios: F1")
    names = sorted({name for each in found for name in each.f1})
    for column in ("language", "rows", "macro-F1", *names):
        table.add_column(column, justify="left" if column == "language" else "right")
    for each in found:
        cells = [f"{each.f1[name]:.3f}" if name in each.f1 else "-" for name in names]
        table.add_row(each.language, f"{each.rows:,}", f"{each.macro_f1:.3f}", *cells)
    return table


def interval(right: float, rows: int) -> tuple[float, float]:
    """Where a share lies with 95 % confidence (Wilson 1927)."""
    if not rows:
        return 0.0, 1.0
    z = 1.959964
    middle = (right + z * z / (2 * rows)) / (1 + z * z / rows)
    half = z / (1 + z * z / rows) * sqrt(right * (1 - right) / rows + z * z / (4 * rows * rows))
    return max(0.0, middle - half), min(1.0, middle + half)


def how_sure(accuracy: float, rows: int) -> str:
    """What so many rows are worth, in a sentence."""
    low, high = interval(accuracy, rows)
    text = f"{100 * accuracy:.1f} % of {rows:,} rows, which says {100 * low:.1f} to {100 * high:.1f} % (95 %)"
    if rows < NARROW:
        text += f": {rows:,} rows are few; a difference below {100 * (high - low) / 2:.0f} points is chance"
    return text


def tree(parts: Sequence[Part], licensed: Iterable[tuple[str, Figures]], found: Sequence[Scenarios]) -> Any:
    """JSON."""
    return msgspec.to_builtins(
        {"parts": list(parts), "open": [list(each) for each in licensed], "scenarios": list(found)}
    )

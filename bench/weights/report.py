"""Tables for people, and the same figures as a tree for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from statistics import median
from typing import Any

import msgspec

from bench.weights.envoy import OURS
from bench.weights.figures import Figures, figures, lag_ms, unanswered
from bench.weights.measure import Run
from bench.weights.verdict import Row, rows

COLUMNS = (
    "variant", "requests", "P50 ms", "P95 ms", "P99 ms", "overflow %", "lost", "react s", "by weight s", "pushes",
)  # fmt: skip

MOST_LAG_MS = 20.0
MOST_CPU = 0.85


def text(runs: Sequence[Run]) -> str:
    return "\n\n".join(_case(name, list(each)) for name, each in groupby(runs, key=lambda run: run.case))


def good(runs: Sequence[Run]) -> bool:
    """Whether every bound of every case holds."""
    cases = [list(each) for _, each in groupby(runs, key=lambda run: run.case)]
    return all(row.holds for case in cases for row in rows(case))


def tree(runs: Sequence[Run]) -> dict[str, Any]:
    """Everything printed, and each run behind it."""
    return {
        "runs": [
            {
                "case": run.case,
                "seed": run.seed,
                "variants": {name: msgspec.to_builtins(figures(run, name)) for name in run.seen},
                "pushes": run.pushes,
                "cpu": run.cpu,
                "lag_p99_ms": lag_ms(run),
            }
            for run in runs
        ],
        "bounds": {
            name: [msgspec.to_builtins(row) for row in rows(list(each))]
            for name, each in groupby(runs, key=lambda run: run.case)
        },
        "good": good(runs),
    }


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Aligned text: the first column to the left, figures to the right."""
    lines = [columns, *rows]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    return "\n".join(
        "  ".join(
            cell.ljust(w) if at == 0 else cell.rjust(w)
            for at, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def _case(name: str, runs: Sequence[Run]) -> str:
    seeds = ", ".join(str(run.seed) for run in runs)
    head = f"{name}: from half-time on, medians of {len(runs)} runs (seeds {seeds}); overflow and lost over all"
    return "\n".join([head, table(COLUMNS, _variants(runs)), "", _bounds(rows(runs)), "", _conditions(runs)])


def _variants(runs: Sequence[Run]) -> Iterable[list[str]]:
    for name in runs[0].seen:
        found = [figures(run, name) for run in runs]
        requests, overflow = sum(each.requests for each in found), sum(each.overflow for each in found)
        yield [
            name,
            f"{requests:,}",
            *(f"{median(getattr(each, key) for each in found):.0f}" for key in ("p50_ms", "p95_ms", "p99_ms")),
            f"{100 * overflow / requests:.2f}",
            str(sum(each.lost for each in found)),
            _seconds(found, "react_s"),
            _seconds(found, "react_weight_s"),
            f"{median(run.pushes for run in runs):g}" if name == OURS else "–",
        ]


def _seconds(found: Sequence[Figures], key: str) -> str:
    """The median; "never" in any run is worse than all."""
    values = [getattr(each, key) for each in found]
    if all(value is None for value in values):
        return "–"
    return f"{median(float('inf') if value is None else value for value in values):.1f}"


def _bounds(found: Sequence[Row]) -> str:
    lines = [
        [row.what, row.bound, f"{row.measured:.3f}", f"{row.least:.3f} – {row.most:.3f}", _holds(row)]
        for row in found
    ]
    return table(("", "bound", "measured", "over runs", ""), lines)


def _holds(row: Row) -> str:
    if row.bound == "noise":
        return ""
    return "holds" if row.holds else "FALLS SHORT"


def _conditions(runs: Sequence[Run]) -> str:
    """Whether the machine left room for what was measured."""
    cpu = ", ".join(f"{name} {100 * median(run.cpu[name] for run in runs):.0f} %" for name in runs[0].cpu)
    lag, lost = max(lag_ms(run) for run in runs), sum(unanswered(run) for run in runs)
    busy = lag > MOST_LAG_MS or max(run.cpu["machine"] for run in runs) > MOST_CPU
    advice = "; TOO BUSY: take --interleave or a quieter machine" if busy else ""
    return f"CPU: {cpu}; requests went out at most {lag:.1f} ms late (P99); {lost} without an answer{advice}"

"""`python -m bench.drift`: one table, one picture."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bench.drift import picture, streams, tick
from bench.drift.methods import CONFIRMED, METHODS, OURS, THRESHOLD, delay_s, false_alarms_per_day, look
from extproc.loops.drift import evaluated
from extproc.settings import load

BASELINE_S, QUIET_S = 600.0, 60.0
MOST_S = 180.0
"""So long a change is waited for."""

CHANGES: Mapping[str, Mapping[str, float]] = {
    "+10 %": {"factor": 1.1},
    "+30 %": {"factor": 1.3},
    "+100 %": {"factor": 2.0},
    "1.5 % +2 s": {"tail_share": 0.015},
}


@dataclass(frozen=True)
class Row:
    """`false_per_day` by method; `delay_s` by change and method, None = not found in most runs."""

    stream: str
    false_per_day: Mapping[str, float]
    delay_s: Mapping[str, Mapping[str, float | None]]


def main() -> int:
    arguments = _parse()
    console = Console(stderr=arguments.json, width=None if sys.stdout.isatty() else 140)
    with Progress(console=Console(stderr=True)) as progress:
        rows = list(measured(arguments, progress))
        cost = _cost(arguments)
    found = {"rows": [vars(row) for row in rows], "tick": cost, "verdicts": verdicts(rows)}
    if arguments.picture:
        arguments.picture.write_text(picture.svg(rows, list(CHANGES)))
    if arguments.json:
        print(json.dumps(found, indent=2))
        return 0
    console.print(_false_table(rows), _delay_table(rows))
    console.print(_told(cost))
    for name, held in found["verdicts"].items():
        console.print(f"{'HOLDS ' if held else 'MISSED'} {name}")
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.drift", description=__doc__)
    parser.add_argument("--hours", type=float, default=2.0, help="of each stream without a change (2)")
    parser.add_argument("--runs", type=int, default=8, help="of each change (8)")
    parser.add_argument("--streams", help="these alone, by name, with commas between")
    parser.add_argument("--seconds", type=float, default=41.0, help="of requests beside looks (41)")
    parser.add_argument("--picture", type=Path, metavar="FILE.svg", help="draw it too")
    parser.add_argument("--json", action="store_true", help="for machines")
    return parser.parse_args()


def every_stream() -> dict[str, streams.Make]:
    found: dict[str, streams.Make] = {
        "lognormal": streams.lognormal,
        "bimodal": streams.bimodal,
        "heavy tail": streams.heavy_tail,
        "diurnal": streams.diurnal,
        "length mix": streams.length_mix,
    }
    data = Path(os.environ.get("EXTPROC_DATA", "../shared/datasets")) / "traces" / "azure2023_conv.csv"
    return found | ({"azure trace": streams.trace(data)} if data.exists() else {})


def measured(arguments: argparse.Namespace, progress: Progress) -> Iterator[Row]:
    chosen = every_stream()
    if arguments.streams:
        chosen = {name: chosen[name] for name in arguments.streams.split(",")}
    task = progress.add_task("streams", total=len(chosen) * (1 + len(CHANGES) * arguments.runs))
    for name, make in chosen.items():
        config = load(b"{}").drift
        random = np.random.default_rng(7)
        baseline = make(random, BASELINE_S, False)
        quiet = look(baseline, make(random, arguments.hours * 3600, True), config)
        progress.advance(task)
        delays: dict[str, dict[str, float | None]] = {}
        for change, how in CHANGES.items():
            seen: dict[str, list[float]] = {method: [] for method in METHODS}
            for run in range(arguments.runs):
                # Not on a look: how long after the last one it happens is luck.
                since_s = QUIET_S + config.interval_s * (run + 0.5) / arguments.runs
                live = make(random, since_s + MOST_S, False)
                alarms = look(baseline, streams.changed(live, random, since_s, **how), config)
                for method in METHODS:
                    delay = delay_s(alarms, method, since_s)
                    seen[method].append(float("inf") if delay is None else delay)
                progress.advance(task)
            middle = {method: median(found) for method, found in seen.items()}
            delays[change] = {method: None if value == float("inf") else value for method, value in middle.items()}
        yield Row(name, {method: false_alarms_per_day(quiet, method) for method in METHODS}, delays)


def verdicts(rows: list[Row]) -> dict[str, bool]:
    """On the streams where the threshold raises no more false alarms than ours: it is told its own rate."""
    fair = [row for row in rows if row.false_per_day[OURS] <= row.false_per_day[THRESHOLD]]

    def twice(row: Row) -> bool:
        ours, plain = row.delay_s["+30 %"][OURS], row.delay_s["+30 %"][THRESHOLD]
        return ours is not None and (plain is None or ours * 2 <= plain)

    def tails(row: Row) -> bool:
        return row.delay_s["1.5 % +2 s"][OURS] is not None

    missed = [row for row in fair if row.delay_s["1.5 % +2 s"][THRESHOLD] is None]
    return {
        "no more false alarms than the threshold, on every stream": len(fair) == len(rows),
        "+30 % found at least twice as fast as by the threshold, on every stream": all(map(twice, fair)),
        "the change of the tail that the threshold misses is found": bool(missed) and all(map(tails, missed)),
        "no false alarm of a confirmed drift": not any(row.false_per_day[CONFIRMED] for row in rows),
    }


def _cost(arguments: argparse.Namespace) -> dict[str, Any]:
    watch = tick.watched()
    on_loop, in_thread = tick.cpu_ms(watch)
    felt = {
        "without": asyncio.run(tick.felt_ms(watch, arguments.seconds, look=None)),
        "with": asyncio.run(tick.felt_ms(watch, arguments.seconds, look=evaluated)),
    }
    return {
        "keys": tick.KEYS,
        "samples": tick.SAMPLES,
        "cpu_on_loop_ms": on_loop,
        "cpu_in_thread_ms": in_thread,
        **{f"late_p99_ms_{name}_looks": float(np.quantile(late, 0.99)) for name, late in felt.items()},
        **{f"late_p50_ms_{name}_looks": float(np.quantile(late, 0.5)) for name, late in felt.items()},
    }


def _false_table(rows: list[Row]) -> Table:
    table = Table(title="False alarms a day, nothing changed", title_justify="left", box=None)
    table.add_column("stream")
    for method in METHODS:
        table.add_column(method, justify="right")
    for row in rows:
        table.add_row(row.stream, *(f"{row.false_per_day[method]:,.0f}" for method in METHODS))
    return table


def _delay_table(rows: list[Row]) -> Table:
    table = Table(title="Seconds until it is found (median), - = not", title_justify="left", box=None)
    table.add_column("stream")
    table.add_column("change")
    for method in METHODS:
        table.add_column(method, justify="right")
    for row in rows:
        for change in CHANGES:
            found = row.delay_s[change]
            cells = ("-" if found[method] is None else f"{found[method]:.0f}" for method in METHODS)
            table.add_row(row.stream, change, *cells)
    return table


def _told(cost: Mapping[str, Any]) -> str:
    return (
        f"One look at {cost['keys']} keys with {cost['samples']:,} samples: {cost['cpu_on_loop_ms']:.1f} ms on the "
        f"event loop, {cost['cpu_in_thread_ms']:.0f} ms in its thread. A decision due every 2 ms is done after "
        f"{cost['late_p50_ms_without_looks']:.2f} ms (P99 {cost['late_p99_ms_without_looks']:.2f}) without looks, "
        f"{cost['late_p50_ms_with_looks']:.2f} ms (P99 {cost['late_p99_ms_with_looks']:.2f}) with one every 10 s."
    )


if __name__ == "__main__":
    sys.exit(main())

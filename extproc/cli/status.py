"""`extproc status`: breakers, drift, degrade, SLO and parameter sets of a running sidecar."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from extproc.cli.arguments import add_config
from extproc.cli.asking import add_admin, admin_of, fetch
from extproc.cli.watching import watch

UNSEEN_WIDTH = 120
"""Where no terminal says how wide it is: in a file, in a pipe."""

INCIDENTS = 8

WHOLE = ("when", "what", "state", "standing", "proved")
"""Columns whose words stay on one line."""

COLOURS = {
    "closed": "green",
    "half_open": "yellow",
    "open": "red",
    "fine": "green",
    "warning": "yellow",
    "drift": "red",
    "unknown": "dim",
    "active": "green",
    "refused": "red",
    "critical": "red",
}


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser("status", help="show breakers, drift, degrade and parameter sets")
    add_config(parser)
    add_admin(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--watch", action="store_true", help="again every second, until Ctrl-C")
    how.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    admin = admin_of(arguments)
    if arguments.json:
        print(json.dumps(fetch(admin, "/status", "breakers"), indent=2))
        return 0
    console = console_of()

    def look() -> Group:
        return shown(fetch(admin, "/status", "breakers"))

    if arguments.watch:
        watch(console, look)
    else:
        console.print(look())
    return 0


def console_of() -> Console:
    return Console(width=None if sys.stdout.isatty() else UNSEEN_WIDTH)


def shown(page: Mapping[str, Any]) -> Group:
    """A table for each kind of thing; what there is none of is left out."""
    parts: list[Any] = [_head(page), _pools(page), _breakers(page)]
    if page["drift"]:
        parts.append(_drift(page))
    parts += [sets(page["parameters"]), _lengths(page)]
    if page["incidents"]:
        parts.append(_incidents(page))
    return Group(*parts)


def _head(page: Mapping[str, Any]) -> Text:
    ago, slo = page["looked_s_ago"], page["slo"]
    words = ["not looked yet" if ago is None else f"looked {ago:.1f} s ago"]
    if not page["enabled"]:
        words.append("PROTECTION IS OFF")
    if page["panic"]:
        words.append(f"PANIC: no pool is closed, {page['panic']} serves")
    broken = f"broken by {', '.join(slo['broken'])}" if slo["broken"] else "kept"
    words.append(f"SLO {broken}, {slo['breached_s']:g} s of the window")
    return Text("; ".join(words), style="red" if slo["broken"] or page["panic"] else "dim")


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in WHOLE)
    return table


def _pools(page: Mapping[str, Any]) -> Table:
    table = _table("pools", "pool", "role", "load", "degraded", "limit")
    for pool in page["pools"]:
        limit = pool["limit"]
        table.add_row(
            pool["name"],
            pool["role"],
            _told(pool["load"], "{:.0%}"),
            "yes" if pool["degraded"] else "no",
            "as configured" if limit is None else str(limit),
        )
    return table


def _breakers(page: Mapping[str, Any]) -> Table:
    table = _table(
        "breakers", "breaker", "state", "for", "next probe", "probes", "requests", "errors", "p99", "reason"
    )
    for each in page["breakers"]:
        probes, window = each["probes"], each["window"]
        table.add_row(
            each["name"],
            _state(each["state"]),
            _told(each["for_s"], "{:.0f} s"),
            _told(each["next_probe_in_s"], "in {:.0f} s"),
            f"{probes['good']} good, {probes['bad']} bad" if probes["good"] + probes["bad"] else "-",
            str(window["requests"]),
            str(window["errors"]),
            _told(window["p99_s"], "{:.0f} ms", 1000),
            each["reason"] or "-",
        )
    return table


def _drift(page: Mapping[str, Any]) -> Table:
    table = _table("drift", "pool", "tier", "set", "state", "D", "p", "P95", "samples", "against", "reason")
    for each in page["drift"]:
        table.add_row(
            each["pool"],
            each["tier"],
            each["parameter_set"],
            _state(each["state"]),
            _told(each["d"], "{:.3f}"),
            _told(each["p"], "{:.2g}"),
            _told(each["p95_delta_s"], "{:+.0f} ms", 1000),
            f"{each['live']}/{each['baseline']}",
            each["baseline_set"] or "no baseline",
            each["reason"].replace("_", " "),
        )
    return table


def sets(parameters: Mapping[str, Any]) -> Table:
    title = "parameter sets" + (" (PINNED)" if parameters["pinned"] else "")
    title += " (NOT SAVED: see the log)" if parameters["unsaved"] else ""
    table = _table(title, "set", "standing", "proved", "since", "reason")
    for each in parameters["versions"]:
        table.add_row(
            each["label"],
            _state(each["standing"]),
            "yes" if each["good"] else "no",
            _when(each["activated_at"] or each["seen_at"]),
            each["reason"] or "-",
        )
    return table


def records(parameters: Mapping[str, Any]) -> Table:
    """What was done to parameter sets."""
    table = _table(
        "what was done, the newest first", "when", "what", "version", "before", "by", "reason", "evidence"
    )
    for each in parameters["records"]:
        evidence = ", ".join(f"{name}={value}" for name, value in each["evidence"].items() if value is not None)
        row = (each["action"].replace("_", " "), each["version"], each["before"], each["by"], each["reason"])
        table.add_row(_when(each["at"]), *(cell or "-" for cell in row), evidence)
    return table


def _incidents(page: Mapping[str, Any]) -> Table:
    table = _table("incidents, the newest first", "when", "what", "state", "reason", "evidence")
    for each in page["incidents"][:INCIDENTS]:
        evidence = ", ".join(f"{name}={value}" for name, value in each["evidence"].items() if value is not None)
        table.add_row(
            _when(each["at"]),
            f"{each['kind']} {each['subject']}",
            Text(each["state"], style=COLOURS.get(each["severity"], "")),
            each["reason"],
            evidence,
        )
    return table


def _lengths(page: Mapping[str, Any]) -> Table:
    table = _table("output lengths", "scenario", "tokens", "answers")
    for name, each in page["lengths"].items():
        table.add_row(name, f"{each['tokens']:.0f}", str(each["samples"]))
    return table


def _state(state: str) -> Text:
    return Text(state.replace("_", " "), style=COLOURS.get(state, ""))


def _when(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%m-%d %H:%M:%SZ")


def _told(value: float | None, form: str, factor: float = 1) -> str:
    return "-" if value is None else form.format(value * factor)

"""`extproc weights`: what every endpoint gets of its pool's traffic, and why, from a running sidecar."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from extproc.cli.arguments import add_config
from extproc.cli.asking import add_admin, admin_of, fetch
from extproc.cli.watching import watch
from extproc.errors import CannotStart

BAR = 20
BLOCKS = "▏▎▍▌▋▊▉█"

UNSEEN_WIDTH = 120
"""Where no terminal says how wide it is: in a file, in a pipe."""

BAR_FROM = 100
"""Columns from which there is room for bars."""


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser("weights", help="show endpoints with their terms, scores and weights")
    add_config(parser)
    add_admin(parser)
    parser.add_argument("--pool", metavar="NAME", help="this pool alone")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--watch", action="store_true", help="again every second, until Ctrl-C")
    how.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    admin = admin_of(arguments)
    if arguments.json:
        print(json.dumps(chosen(fetch(admin, "/weights", "pools"), arguments.pool), indent=2))
        return 0
    console = Console(width=None if sys.stdout.isatty() else UNSEEN_WIDTH)

    def look() -> Group:
        return shown(chosen(fetch(admin, "/weights", "pools"), arguments.pool), width=console.width)

    if arguments.watch:
        watch(console, look)
    else:
        console.print(look())
    return 0


def chosen(page: dict[str, Any], pool: str | None) -> dict[str, Any]:
    """The page with one pool alone; CannotStart where it has none of that name."""
    if pool is None:
        return page
    pools = [each for each in page["pools"] if each["name"] == pool]
    if not pools:
        names = ", ".join(each["name"] for each in page["pools"]) or "none"
        raise CannotStart(f"no pool {pool!r}; there are: {names}")
    return {**page, "pools": pools}


def shown(page: Mapping[str, Any], *, width: int) -> Group:
    """A table per pool, for people with so many columns."""
    age_s = page["tick_age_s"]
    head = "not weighed yet" if age_s is None else f"generation {page['generation']}, weighed {age_s:.1f} s ago"
    problems = [Text(f"not published: {problem}", style="red") for problem in page["problems"]]
    if not page["pools"]:
        problems.append(Text("no pools"))
    tables = (_table(pool, bars=width >= BAR_FROM) for pool in page["pools"])
    return Group(Text(head, style="dim"), *problems, *tables)


def _table(pool: Mapping[str, Any], *, bars: bool) -> Table:
    """Too little room is taken from the first and the last column, in lines of their own: no digit is ever lost."""
    title = f"{pool['name']} ({pool['engine']}, {pool['role']})" + "".join(
        f" {word.upper()}" for word in ("saturated", "unhealthy") if pool[word]
    )
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2 if bars else 1, 0, 0))
    table.add_column("endpoint", overflow="fold")
    for name in ("mem", "p99 ms", "age s", "score", "weight", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    if bars:
        table.add_column("", no_wrap=True)
    table.add_column("why")
    for row in pool["endpoints"]:
        table.add_row(*_cells(row, bars=bars), style="dim" if row["draining"] else None)
    return table


def _cells(row: Mapping[str, Any], *, bars: bool) -> Iterator[str]:
    memory, latency = row["terms"].get("memory", {}), row["terms"].get("latency", {})
    ages = [term["age_s"] for term in row["terms"].values() if term["age_s"] is not None]
    yield row["endpoint"]
    yield _told(memory.get("reading"), "{:.0%}")
    yield _told(latency.get("reading"), "{:,.0f}", 1000)
    yield _told(max(ages, default=None), "{:.1f}")
    yield _told(row["score"], "{:.3f}")
    yield str(row["weight"])
    yield f"{row['share']:.1%}"
    if bars:
        yield bar(row["share"])
    moved = f" ({row['moved_by']})" if row["moved_by"] and row["moved_by"] != row["reason"] else ""
    yield row["reason"].replace("_", " ") + moved


def bar(share: float) -> str:
    """A share of the whole as a bar, to an eighth of a character."""
    eighths = round(share * BAR * 8)
    full, rest = divmod(eighths, 8)
    return "█" * full + (BLOCKS[rest - 1] if rest else "")


def _told(value: float | None, form: str, factor: float = 1) -> str:
    return "-" if value is None else form.format(value * factor)

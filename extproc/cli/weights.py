"""`extproc weights`: what every endpoint gets of its pool's traffic, and why, from a running sidecar."""

from __future__ import annotations

import argparse
import http.client
import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from extproc.cli.arguments import add_config
from extproc.errors import CannotStart
from extproc.settings import load

REFRESH_S = 1.0
BAR = 20
BLOCKS = "▏▎▍▌▋▊▉█"


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser("weights", help="show endpoints with their terms, scores and weights")
    add_config(parser)
    parser.add_argument("--admin", metavar="HOST:PORT", help="the sidecar's admin pages (listeners.admin)")
    parser.add_argument("--pool", metavar="NAME", help="this pool alone")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--watch", action="store_true", help="again every second, until Ctrl-C")
    how.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    admin = arguments.admin or load(arguments.config.read_bytes() if arguments.config else b"").listeners.admin
    if arguments.json:
        print(json.dumps(chosen(fetch(admin), arguments.pool), indent=2))
        return 0
    console = Console()
    if not arguments.watch:
        console.print(shown(chosen(fetch(admin), arguments.pool)))
        return 0
    _watch(console, admin, arguments.pool)
    return 0


def _watch(console: Console, admin: str, pool: str | None) -> None:
    try:
        with Live(shown(chosen(fetch(admin), pool)), console=console, auto_refresh=False) as live:
            while True:
                time.sleep(REFRESH_S)
                live.update(shown(chosen(fetch(admin), pool)), refresh=True)
    except KeyboardInterrupt:
        return


def fetch(admin: str) -> dict[str, Any]:
    """The sidecar's `/weights`; CannotStart where nobody answers."""
    host, _, port = admin.rpartition(":")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port) if port.isdecimal() else 0, timeout=5)
    try:
        connection.request("GET", "/weights")
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise CannotStart(f"http://{admin}/weights answered {answer.status}")
        found: dict[str, Any] = json.loads(body)
        return found
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise CannotStart(f"no sidecar answers at http://{admin}/weights: {error}") from None
    finally:
        connection.close()


def chosen(page: dict[str, Any], pool: str | None) -> dict[str, Any]:
    """The page with one pool alone; CannotStart where it has none of that name."""
    if pool is None:
        return page
    pools = [each for each in page["pools"] if each["name"] == pool]
    if not pools:
        names = ", ".join(each["name"] for each in page["pools"]) or "none"
        raise CannotStart(f"no pool {pool!r}; there are: {names}")
    return {**page, "pools": pools}


def shown(page: Mapping[str, Any]) -> Group:
    """A table per pool, for people."""
    head = f"generation {page['generation']}, weighed {_age(page['tick_age_s'])} ago"
    problems = [Text(f"not published: {problem}", style="red") for problem in page["problems"]]
    if not page["pools"]:
        problems.append(Text("no pools"))
    return Group(Text(head, style="dim"), *problems, *map(_table, page["pools"]))


def _table(pool: Mapping[str, Any]) -> Table:
    title = f"{pool['name']} ({pool['engine']}, {pool['role']})" + (" SATURATED" if pool["saturated"] else "")
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("endpoint", no_wrap=True)
    for name in ("memory", "p99", "age", "score", "weight", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("why", no_wrap=True)
    for row in pool["endpoints"]:
        table.add_row(*_cells(row), style="dim" if row["draining"] else None)
    return table


def _cells(row: Mapping[str, Any]) -> Iterator[str]:
    memory, latency = row["terms"].get("memory", {}), row["terms"].get("latency", {})
    ages = [term["age_s"] for term in row["terms"].values() if term["age_s"] is not None]
    yield row["endpoint"]
    yield _percent(memory.get("reading"))
    yield _ms(latency.get("reading"))
    yield _age(max(ages, default=None))
    yield "-" if row["score"] is None else f"{row['score']:.3f}"
    yield str(row["weight"])
    yield f"{row['share']:.1%}"
    yield bar(row["share"])
    moved = f" ({row['moved_by']})" if row["moved_by"] and row["moved_by"] != row["reason"] else ""
    yield row["reason"].replace("_", " ") + moved


def bar(share: float) -> str:
    """A share of the whole as a bar, to an eighth of a character."""
    eighths = round(share * BAR * 8)
    full, rest = divmod(eighths, 8)
    return "█" * full + (BLOCKS[rest - 1] if rest else "")


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value * 1000:,.0f} ms"


def _age(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"

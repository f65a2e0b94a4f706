"""`extproc dashboards`: Grafana dashboards as JSON files."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from extproc.dashboards import PAGES, dashboard


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser("dashboards", help="write Grafana dashboards as JSON files")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    arguments.out.mkdir(parents=True, exist_ok=True)
    for page in PAGES:
        file = arguments.out / f"{page.uid}.json"
        file.write_text(json.dumps(dashboard(page), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(file)
    return 0

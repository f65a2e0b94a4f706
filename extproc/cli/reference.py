"""`extproc reference`: every config key and every metric, as Markdown, made from the code."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import yaml
from msgspec import Struct
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from extproc.edge import protection_metrics
from extproc.edge.control_metrics import ControlMetrics
from extproc.edge.incidents import Incidents
from extproc.edge.metrics import Metrics
from extproc.edge.traffic_metrics import TrafficMetrics
from extproc.settings import defaults_text

LONGEST_DEFAULT = 60
_KEY = re.compile(r"^( *)([A-Za-z0-9_]+):(.*)$")
_COMMENT = re.compile(r"(?:^|\s)#\s?(.*)$")


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser("reference", help="print every config key, or every metric, as Markdown")
    parser.add_argument("what", choices=("config", "metrics"))
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    print(config() if arguments.what == "config" else metrics(), end="")
    return 0


def config() -> str:
    """Keys, their defaults and what the shipped file says of them. Lists are shown by their length."""
    text = defaults_text().decode()
    told = dict(_comments(text))
    lines = [
        "# Configuration reference",
        "",
        "Made by `extproc reference config` from the shipped `extproc.yaml`, which every key has its default in.",
        "",
        "| key | default | |",
        "|---|---|---|",
    ]
    for path, value in _leaves(yaml.safe_load(text), ""):
        lines.append(f"| `{path}` | {_default(value)} | {_cell(_said(path, told))} |")
    return "\n".join(lines) + "\n"


def _said(path: str, told: Mapping[str, str]) -> str:
    """Of the key, or of the nearest block it stands in that says anything."""
    while path and path not in told:
        path = path.rpartition(".")[0]
    return told.get(path, "")


def _leaves(tree: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, dict) and tree:
        for key, value in tree.items():
            yield from _leaves(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, tree


def _default(value: Any) -> str:
    if isinstance(value, list) and len(str(value)) > LONGEST_DEFAULT:
        return f"{len(value)} entries"
    if value is None:
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`" if value != "" else '`""`'


def _comments(text: str) -> Iterator[tuple[str, str]]:
    """The comment on a key's own line, by the key's path. Blocks that stand in one line have theirs once."""
    above: list[tuple[int, str]] = []
    for line in text.splitlines():
        found = _KEY.match(line)
        if found is None:
            continue
        indent, key, rest = len(found[1]), found[2], found[3]
        above = [each for each in above if each[0] < indent] + [(indent, key)]
        comment = _COMMENT.search(rest)
        path = ".".join(name for _, name in above)
        if comment is None:
            continue
        yield path, comment[1]
        for inner in re.findall(r"[{,]\s*([A-Za-z0-9_]+):", rest[: comment.start()]):
            yield f"{path}.{inner}", comment[1]


def metrics() -> str:
    """Names, labels and meanings of all that stands on /metrics, or may."""
    lines = [
        "# Metrics reference",
        "",
        "Made by `extproc reference metrics`. Histograms have `_bucket`, `_sum` and `_count`. What protection",
        "shows (`llm_breaker_*`, `llm_drift_*`, `llm_slo_*`, `llm_pool_*`, `llm_scenario_length_*`) and what there",
        "is of each endpoint (`llm_endpoint_*`, `llm_telemetry_*`) is made of the last look, and begins with it.",
        "",
        "| metric | type | labels | |",
        "|---|---|---|---|",
    ]
    for each in sorted(_families(), key=lambda each: each.name):
        labels = ", ".join(f"`{label}`" for label in each.labels)
        lines.append(f"| `{each.name}` | {each.type} | {labels} | {_cell(each.text)} |")
    return "\n".join(lines) + "\n"


class Family(Struct, frozen=True):
    """As it stands on the page: counters end in `_total`."""

    name: str
    type: str
    labels: tuple[str, ...]
    text: str


class _NoAudit:
    """An audit file that has written nothing."""

    written = dropped = failures = pending = 0


def _families() -> Iterator[Family]:
    made = Metrics(version="")
    made.watch_audit(_NoAudit())
    registry = made.registry
    ControlMetrics(registry)
    TrafficMetrics(registry, pool_of=str)
    Incidents(registry, lambda _: None, shown=1)
    for collector in registry._collector_to_names:  # it tells samples; a family without any has labels too
        for family in _described(collector):
            if family.name.startswith("llm_"):
                yield _family(family, getattr(collector, "_labelnames", ()))
    for family in protection_metrics.families().values():
        yield _family(family, ())


def _described(collector: Collector) -> Iterable[Metric]:
    """The client's collectors of the process do not describe themselves."""
    describe: Callable[[], Iterable[Metric]] | None = getattr(collector, "describe", None)
    return describe() if describe else ()


def _family(family: Metric, labels: Sequence[str]) -> Family:
    suffix = "_total" if family.type == "counter" else ""
    known = tuple(getattr(family, "_labelnames", ()) or labels)
    return Family(family.name + suffix, family.type, known, family.documentation)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").strip()

"""The reference pages are what the code makes, and leave no key out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from extproc.cli.main import main
from extproc.settings import load

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize(("what", "page"), [("config", "config-reference.md"), ("metrics", "metrics.md")])
def test_the_pages_are_current(what: str, page: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reference", what]) == 0
    assert (DOCS / page).read_text(encoding="utf-8") == capsys.readouterr().out


def leaves(tree: Any, path: str = "") -> list[str]:
    if isinstance(tree, dict) and tree:
        return [each for key, value in tree.items() for each in leaves(value, f"{path}.{key}" if path else key)]
    return [path]


def test_every_key_is_explained() -> None:
    page = (DOCS / "config-reference.md").read_text(encoding="utf-8")
    assert [line for line in page.splitlines() if line.startswith("| `") and line.endswith("|  |")] == []


def test_every_key_of_the_settings_is_there() -> None:
    page = (DOCS / "config-reference.md").read_text(encoding="utf-8")
    shown = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")}
    for path in leaves(load("").model_dump(mode="json")):
        # A key whose default is nothing may be left out of the shipped file, with its block.
        assert any(path == each or path.startswith(f"{each}.") for each in shown) or _is_none(path), path


def _is_none(path: str) -> bool:
    tree: Any = load("").model_dump(mode="json")
    for key in path.split("."):
        tree = tree[key]
    return tree is None


def documented() -> dict[str, tuple[str, set[str]]]:
    """Type and labels by name."""
    rows = [
        line.split(" | ")
        for line in (DOCS / "metrics.md").read_text(encoding="utf-8").splitlines()
        if "| `" in line
    ]
    return {row[0].strip("| `"): (row[1], {each.strip("` ") for each in row[2].split(",")} - {""}) for row in rows}


@pytest.mark.parametrize(
    ("name", "kind", "labels"),
    [
        ("llm_requests_total", "counter", {"dialect", "tier", "class"}),
        ("llm_drift_d", "gauge", {"pool", "parameter_set", "tier"}),
        ("llm_breaker_state", "gauge", {"breaker", "state"}),
        ("llm_endpoint_telemetry", "gauge", {"pool", "endpoint", "term"}),
        ("llm_request_duration_seconds", "histogram", {"pool", "tier", "status"}),
        ("llm_scrape_failures_total", "counter", {"source", "cause"}),
        ("llm_incidents_total", "counter", {"kind", "subject", "state"}),
        ("llm_breaker_panic", "gauge", set()),
    ],
)
def test_metrics_are_there_as_they_are_shown(name: str, kind: str, labels: set[str]) -> None:
    assert documented()[name] == (kind, labels)

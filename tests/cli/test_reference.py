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


@pytest.mark.parametrize(
    "name", ["llm_requests", "llm_classified", "llm_xds_nacks", "llm_request_duration_seconds"]
)
def test_metrics_are_there(name: str) -> None:
    assert f"| `{name}` |" in (DOCS / "metrics.md").read_text(encoding="utf-8")

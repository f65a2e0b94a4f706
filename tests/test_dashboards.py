"""Dashboards: what lies in deploy/ is what the code makes, and Grafana can read it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from extproc.cli.main import main
from extproc.dashboards import PAGES, WIDTH, Page, dashboard

SHIPPED = Path(__file__).resolve().parents[1] / "deploy" / "grafana" / "dashboards"


@pytest.mark.parametrize("page", PAGES, ids=[page.uid for page in PAGES])
def test_the_shipped_file_is_what_the_code_makes(page: Page) -> None:
    assert json.loads((SHIPPED / f"{page.uid}.json").read_text(encoding="utf-8")) == dashboard(page)


def test_nothing_else_is_shipped() -> None:
    assert {path.stem for path in SHIPPED.iterdir()} == {page.uid for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=[page.uid for page in PAGES])
def test_panels_have_room_and_names(page: Page) -> None:
    made = dashboard(page)
    panels: list[dict[str, Any]] = made["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) == len({panel["title"] for panel in panels})
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        assert at["x"] >= 0 and at["x"] + at["w"] <= WIDTH
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
        assert all(target["expr"] and target["refId"] for target in panel["targets"])
    assert len(page.uid) <= 40, "Grafana's bound"
    assert {link["url"] for link in made["links"]} == {f"/d/{other.uid}" for other in PAGES if other is not page}


@pytest.mark.parametrize("page", PAGES, ids=[page.uid for page in PAGES])
def test_no_query_answers_where_there_is_nothing(page: Page) -> None:
    """Or "no panel is empty" would be true of nothing."""
    for panel in page.panels:
        for query in panel.queries:
            assert "vector(" not in query.expr and "absent" not in query.expr and " or 0" not in query.expr, (
                panel.title
            )


def test_the_command_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboards", "--out", str(tmp_path / "d")]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(PAGES) == len(list((tmp_path / "d").iterdir()))

"""Dashboards: what lies in deploy/ is what the code makes, and Grafana can read it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from extproc.cli.main import main
from extproc.dashboards import PAGES, WIDTH, Page, dashboard
from tests.grafana import faults

SHIPPED = Path(__file__).resolve().parents[1] / "deploy" / "grafana" / "dashboards"


def shipped(page: Page) -> dict[str, Any]:
    made: dict[str, Any] = json.loads((SHIPPED / f"{page.uid}.json").read_text(encoding="utf-8"))
    return made


@pytest.mark.parametrize("page", PAGES, ids=[page.uid for page in PAGES])
def test_the_shipped_file_is_what_the_code_makes(page: Page) -> None:
    assert shipped(page) == dashboard(page)


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


@pytest.mark.parametrize("page", PAGES, ids=[page.uid for page in PAGES])
def test_grafana_knows_every_field_and_its_type(page: Page) -> None:
    assert faults(shipped(page)) == []


Planted = tuple[str, Callable[[dict[str, Any]], Any]]
PLANTED: list[Planted] = [
    # the path that is told, what is done to a good dashboard
    (".colour", lambda made: made.update(colour="red")),
    (".colour", lambda made: made.update(colour=None)),
    (".uid", lambda made: made.update(uid=7)),
    (".schema_version", lambda made: made.update(schemaVersion="39")),
    (".editable", lambda made: made.update(editable="yes")),
    (".editable", lambda made: made.update(editable=1)),
    (".graph_tooltip", lambda made: made.update(graphTooltip=3)),
    (".graph_tooltip", lambda made: made.update(graphTooltip=True)),
    (".refresh", lambda made: made.update(refresh=10)),
    (".tags[0]", lambda made: made.update(tags=[1])),
    (".links[0].type", lambda made: made["links"][0].update(type="anchor")),
    (".templating.list[0].hide", lambda made: made["templating"]["list"][0].update(hide="no")),
    (".templating.list[0].width", lambda made: made["templating"]["list"][0].update(width=1)),
    (".panels[0].type", lambda made: made["panels"][0].update(type="speedometer")),
    (".panels[0].title", lambda made: made["panels"][0].update(title=["a"])),
    (".panels[0].gridPos.z", lambda made: made["panels"][0]["gridPos"].update(z=1)),
    (".panels[0].grid_pos.w", lambda made: made["panels"][0]["gridPos"].update(w="4")),
    (".panels[0].gridPos", lambda made: made["panels"][0].update(gridPos="left")),
    (".panels[0].options.needle", lambda made: made["panels"][0]["options"].update(needle=True)),
    (".panels[0].options.graph_mode", lambda made: made["panels"][0]["options"].update(graphMode="pie")),
    (
        ".panels[0].options.reduceOptions.calc",
        lambda made: made["panels"][0]["options"].update(reduceOptions={"calc": "last"}),
    ),
    (
        ".panels[0].options.reduce_options.calcs",
        lambda made: made["panels"][0]["options"].update(reduceOptions={"calcs": 1}),
    ),
    (
        ".panels[0].field_config.defaults.min",
        lambda made: made["panels"][0]["fieldConfig"]["defaults"].update(min="0"),
    ),
    (
        ".panels[0].field_config.defaults.thresholds.steps[0].value",
        lambda made: made["panels"][0]["fieldConfig"]["defaults"]["thresholds"]["steps"][0].update(value="low"),
    ),
    (".panels[0].targets[0].promql", lambda made: made["panels"][0]["targets"][0].update(promql="up")),
    (".panels[0].targets[0].expr", lambda made: made["panels"][0]["targets"][0].update(expr=1)),
    (".panels[0].targets[0].range", lambda made: made["panels"][0]["targets"][0].update(range="yes")),
    (
        ".panels[0].targets[0].datasource.id",
        lambda made: made["panels"][0]["targets"][0]["datasource"].update(id=1),
    ),
    (
        ".panels[0].targets[0].datasource.uid",
        lambda made: made["panels"][0]["targets"][0]["datasource"].update(uid=1),
    ),
    (".panels[0].targets[0]", lambda made: made["panels"][0]["datasource"].update(type="oracle")),
]


@pytest.mark.parametrize(("path", "plant"), PLANTED, ids=[f"{at}{path}" for at, (path, _) in enumerate(PLANTED)])
def test_grafana_would_not_understand(path: str, plant: Callable[[dict[str, Any]], Any]) -> None:
    made = shipped(PAGES[0])
    plant(made)
    found = faults(made)
    assert any(each.startswith(path) for each in found), found or "nothing was found"


def test_the_command_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboards", "--out", str(tmp_path / "d")]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(PAGES) == len(list((tmp_path / "d").iterdir()))

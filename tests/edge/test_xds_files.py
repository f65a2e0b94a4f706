"""Files for Envoy: what stands in them, when they are written, and what a full disk does."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from extproc.edge.xds_files import XdsFiles
from extproc.model.xds import Kind, Resources

ADS = {"ads": {}, "resource_api_version": "V3"}


def eds(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "EDS", "eds_cluster_config": {"eds_config": ADS, **more}}


def assignment(name: str, weight: int = 1) -> dict[str, Any]:
    return {"cluster_name": name, "endpoints": [{"lb_endpoints": [{"load_balancing_weight": weight}]}]}


def world(*names: str, weight: int = 1, **more: Any) -> Resources:
    by_kind = {
        Kind.CDS: {name: eds(name) for name in names},
        Kind.EDS: {name: assignment(name, weight) for name in names},
        Kind.RDS: {"r": {"name": "r"}},
        Kind.RTDS: {"l": {"name": "l", "layer": {"x": 1}}},
    }
    return Resources(1, by_kind | more.get("by_kind", {}))


def read(path: Path) -> Any:
    return json.loads(path.read_bytes())


def marks(folder: Path) -> dict[str, int]:
    """Inode of each file: another one where a file was written."""
    return {str(path.relative_to(folder)): path.stat().st_ino for path in folder.rglob("*") if path.is_file()}


def changed(before: dict[str, int], after: dict[str, int]) -> set[str]:
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "xds"


def test_every_kind_has_its_file(folder: Path) -> None:
    XdsFiles(folder).write(world("a", "b"))
    assert set(marks(folder)) == {"cds.json", "rds.json", "rtds.json", "eds/a.json", "eds/b.json"}
    assert [each["name"] for each in read(folder / "cds.json")["resources"]] == ["a", "b"]
    (runtime,) = read(folder / "rtds.json")["resources"]
    assert runtime == {"@type": Kind.RTDS.value, "name": "l", "layer": {"x": 1}}
    (one,) = read(folder / "eds" / "a.json")["resources"]
    assert one == {"@type": Kind.EDS.value, **assignment("a")}


def test_clusters_ask_for_their_endpoints_in_a_file(folder: Path) -> None:
    static = {"name": "s", "type": "STATIC"}
    named = eds("a", service_name="pool/1")
    XdsFiles(folder).write(
        world(by_kind={Kind.CDS: {"a": named, "s": static}, Kind.EDS: {"pool/1": assignment("pool/1")}})
    )
    one, two = read(folder / "cds.json")["resources"]
    path = folder / "eds" / "pool%2F1.json"
    assert one["eds_cluster_config"] == {
        "service_name": "pool/1",
        "eds_config": {
            "path_config_source": {"path": str(path), "watched_directory": {"path": str(path.parent)}},
            "resource_api_version": "V3",
        },
    }
    assert path.exists()
    assert two == {"@type": Kind.CDS.value, **static}
    assert named["eds_cluster_config"]["eds_config"] is ADS, "what was handed over is not touched"


def test_a_name_cannot_leave_the_folder(folder: Path) -> None:
    XdsFiles(folder).write(world("../../x"))
    assert "eds/..%2F..%2Fx.json" in marks(folder)


def test_an_assignment_that_is_missing_is_empty(folder: Path) -> None:
    XdsFiles(folder).write(world("a", by_kind={Kind.EDS: {}}))
    (one,) = read(folder / "eds" / "a.json")["resources"]
    assert one == {"@type": Kind.EDS.value, "cluster_name": "a"}


def test_only_what_changed_is_written(folder: Path) -> None:
    files = XdsFiles(folder)
    files.write(world("a", "b"))
    before = marks(folder)
    files.write(world("a", "b"))
    assert marks(folder) == before
    files.write(world("a", "b", by_kind={Kind.EDS: {"a": assignment("a", 2), "b": assignment("b")}}))
    assert changed(before, marks(folder)) == {"eds/a.json"}


def test_a_new_start_writes_nothing_that_stands_there_already(folder: Path) -> None:
    XdsFiles(folder).write(world("a"))
    before = marks(folder)
    XdsFiles(folder).write(world("a"))
    assert marks(folder) == before


def test_versions_are_of_the_content(folder: Path) -> None:
    files, versions = XdsFiles(folder), []
    for weight in (1, 2, 1):
        files.write(world("a", weight=weight))
        versions.append(read(folder / "eds" / "a.json")["version_info"])
    assert versions[0] == versions[2] != versions[1]


def test_what_left_is_swept_away_also_that_of_an_earlier_run(folder: Path) -> None:
    XdsFiles(folder).write(world("a", "b"))
    XdsFiles(folder).write(world("b"))
    assert set(marks(folder)) == {"cds.json", "rds.json", "rtds.json", "eds/b.json"}


def test_no_clusters_at_all_are_not_written(folder: Path) -> None:
    files = XdsFiles(folder)
    files.write(world("a"))
    before = marks(folder)
    files.write(world(by_kind={Kind.CDS: {}}))
    assert marks(folder) == before


def test_a_kind_without_resources_keeps_its_file(folder: Path) -> None:
    files = XdsFiles(folder)
    files.write(world("a"))
    before = marks(folder)
    files.write(world("a", by_kind={Kind.RDS: {}}))
    assert marks(folder) == before


def test_a_disk_that_fails_is_told_once_counted_and_forgiven(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    failures: list[None] = []
    files = XdsFiles(folder, on_failure=lambda: failures.append(None))
    folder.write_text("in the way")
    for _ in range(3):
        files.write(world("a"))
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert (len(errors), len(failures)) == (1, 3)
    folder.unlink()
    files.write(world("a"))
    assert (folder / "cds.json").exists()
    assert len(failures) == 3


def test_clusters_are_not_written_before_their_endpoints_are(folder: Path) -> None:
    """Envoy refuses a cluster whose file is not there."""
    failures: list[None] = []
    files = XdsFiles(folder, on_failure=lambda: failures.append(None))
    files.write(world("a"))
    files.assignment("b").mkdir()
    files.write(world("a", "b"))
    assert len(failures) == 1
    assert [each["name"] for each in read(folder / "cds.json")["resources"]] == ["a"]

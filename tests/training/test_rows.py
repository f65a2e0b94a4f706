"""Rows of TSV files, and what their labels stand for."""

from __future__ import annotations

from pathlib import Path

import pytest

from extproc.errors import CannotStart, ConfigError
from extproc.model.names import Tier
from extproc.request.classify.weights import Label
from extproc.training.rows import LabelMap, meanings, read, shipped_labels

SCENARIOS = {"returns": Tier.STRICT, "copywriting": Tier.CREATIVE}
PLAIN = LabelMap((), SCENARIOS)


def file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "shop.tsv"
    path.write_text(text, encoding="utf-8")
    return path


def test_without_a_header(tmp_path: Path) -> None:
    rows = read(file(tmp_path, 'send it "back\treturns\n\na poem\tcreative\n'), PLAIN)
    assert [(row.text, row.label) for row in rows] == [
        ('send it "back', Label("shop:returns", "returns", Tier.STRICT)),
        ("a poem", Label("shop:creative", "", Tier.CREATIVE)),
    ]
    assert {row.source for row in rows} == {"shop"}


def test_with_one_in_any_order(tmp_path: Path) -> None:
    text = "licence\tText\ttier\tsource\tlabel\nopen\t退款\tstrict\tours\trefunds\n"
    (row,) = read(file(tmp_path, text), PLAIN)
    assert (row.text, row.source, row.licence, row.language) == ("退款", "ours", "open", "zh")
    assert row.label == Label("ours:refunds", "", Tier.STRICT)


def test_the_labels_file_overrules_the_row_and_drops(tmp_path: Path) -> None:
    labels = LabelMap(
        meanings("ours:ref*\treturns\tstrict\nours:odd\t\tdrop\n*:poem\t\tcreative\n", "l"), SCENARIOS
    )
    text = "text\ttier\tsource\tlabel\na\tnormal\tours\trefunds\nb\tnormal\tours\todd\nc\tnormal\tours\tpoem\nd\tnormal\tours\tz\n"
    found = [(row.text, row.label.scenario, row.label.tier) for row in read(file(tmp_path, text), labels)]
    assert found == [("a", "returns", Tier.STRICT), ("c", "", Tier.CREATIVE), ("d", "", Tier.NORMAL)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a\tnowhere", r"shop.tsv.1: 'nowhere' is neither a scenario nor a tier"),
        ("a", "neither scenario nor tier"),
        ("text\tscenario\na\t\n", "neither scenario nor tier"),
        ("a,strict", "parted by tabs"),
        ("\treturns", "no text"),
        ("text\ttier\na\tcold\nb\t\n", r"shop.tsv.2"),
    ],
)
def test_mistakes_by_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read(file(tmp_path, text), PLAIN)


def test_what_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CannotStart, match="UTF-8"):
        read(path, PLAIN)


@pytest.mark.parametrize("line", ["x\ty\tcold", "x\ty\tstrict\tmore"])
def test_mistakes_in_a_labels_file(line: str) -> None:
    with pytest.raises(ConfigError, match=r"l.2: allowed"):
        meanings(f"# fine\n{line}\n", "l")


def test_a_contradiction() -> None:
    labels = LabelMap(meanings("x\treturns\tcreative", "l"), SCENARIOS)
    with pytest.raises(ValueError, match="its scenario 'returns' is strict"):
        labels.label("x")


def test_the_shipped_file_is_read() -> None:
    assert len(meanings(shipped_labels(), "labels.tsv")) > 300

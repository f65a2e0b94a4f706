"""`extproc train-intent`, `eval-intent` and `label`, as a person runs them."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from extproc.cli.main import main
from extproc.model.names import Tier
from extproc.model.values import Classification
from extproc.request.classify.weights import decode
from extproc.unsure import UnsureTexts
from tests.training.data import WRITTEN, folder
from tests.training.test_learn import rows


def table(path: Path, source: str = "a") -> str:
    lines = [f"{row.text}\t{row.label.scenario}\t{source}\topen" for row in rows(source)]
    path.write_text("\n".join(["text\tscenario\tsource\tlicence", *lines]) + "\n", encoding="utf-8")
    return str(path)


def train(tmp_path: Path, *arguments: str, out: str = "m.npz") -> bytes:
    file = tmp_path / out
    usual = ["--no-utterances", "--folds", "2", "--date", "2024-05-01", "--out", str(file)]
    assert main(["train-intent", table(tmp_path / "d.tsv"), *usual, *arguments]) == 0
    return file.read_bytes()


def test_training_twice_gives_the_same_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = train(tmp_path, "--picture", str(tmp_path / "p.svg"), "--leave-out")
    out = capsys.readouterr().out
    assert "en: " in out and "rows are few" in out
    assert "most likely tier" in out and "rows are true" in out and "p50" in out and "sha256" in out
    assert ET.parse(tmp_path / "p.svg").getroot().tag.endswith("svg")
    assert train(tmp_path, "--leave-out", out="n.npz") == first != train(tmp_path, "--seed", "2", out="o.npz")
    about = decode(first).about
    assert (about["date"], about["rows"], about["licences"], list(about["data"])) == (
        "2024-05-01", 360, ["open"], ["d.tsv"],
    )  # fmt: skip
    assert str(tmp_path) not in json.dumps(about)


def test_the_report_for_machines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(tmp_path, "--json")
    out, err = capsys.readouterr()
    assert json.loads(out)["folds"] == 2 and "sha256" in err


def test_adapting_says_how_little_the_rows_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = train(tmp_path, "--start-from", "shipped")
    out = capsys.readouterr().out
    assert "before: " in out and "rows are few" in out
    assert decode(data).about["start_from"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["eval-intent", "shipped", "{tmp}/none.tsv"], "No such file"),
        (["eval-intent", "{tmp}/bad.tsv", "{tmp}/bad.tsv"], "no intent model"),
        (["eval-intent", "shipped", "{tmp}/bad.tsv"], "neither a scenario nor a tier"),
        (["eval-intent", "shipped", "{tmp}/empty.tsv"], "no rows"),
        (["train-intent", "{tmp}/empty.tsv", "--out", "{tmp}/m"], "no rows"),
        (["train-intent", "{tmp}/open.tsv", "--open-only", "--out", "{tmp}/m"], "no rows"),
        (["label", "--out", "{tmp}/l.tsv", "--state-dir", "{tmp}"], "keep_unsure is off"),
        (["label", "--out", "{tmp}/bad.tsv", "--state-dir", "{tmp}"], "is there already"),
        (["label", "--out", "{tmp}/none/l.tsv", "--state-dir", "{tmp}"], "no folder"),
        (["train-intent", "{tmp}/bad.tsv", "--out", "{tmp}/none/m"], "no folder"),
        (["train-intent", "{tmp}/bad.tsv", "--out", "{tmp}/m", "--picture", "{tmp}/none/p"], "no folder"),
        (["eval-intent", "shipped", "{tmp}/bad.tsv", "--picture", "{tmp}/none/p"], "no folder"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path, arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.tsv").write_text("a\tcold\n")
    (tmp_path / "empty.tsv").write_text("")
    (tmp_path / "open.tsv").write_text("text\ttier\tlicence\na\tstrict\tclosed\n")
    assert main([each.format(tmp=tmp_path) for each in arguments]) in (1, 2)
    err = capsys.readouterr().err
    assert problem in err and err.count("\n") == 1


def test_labelling(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for worker in (0, 2):
        kept = UnsureTexts(tmp_path, worker, lambda: 10_000)
        kept("is it\there\nyet", Classification(Tier.STRICT, "order_query", "intent", "order_query", 0.6))
        kept(f"another {worker} \ud800", Classification(Tier.NORMAL, "general", "intent", "general", 0.5))
        kept.close()
    (tmp_path / "unsure.7.jsonl").write_bytes(b'{"text": "cut sho')
    out = tmp_path / "to-label.tsv"
    assert main(["label", "--out", str(out), "--state-dir", str(tmp_path)]) == 0
    assert "3 of 3 texts" in capsys.readouterr().out
    lines = [line.split("\t") for line in out.read_text(encoding="utf-8").splitlines()]
    assert lines[0] == ["text", "scenario", "likely", "likely_tier", "confidence"]
    assert [line[0] for line in lines[1:]] == ["another 0 ?", "another 2 ?", "is it here yet"]
    assert lines[3][1:] == ["", "order_query", "strict", "0.60"]
    # Filled in, it is what training reads.
    out.write_text(out.read_text(encoding="utf-8").replace("\t\t", "\tnormal\t"), encoding="utf-8")
    assert main(["eval-intent", "shipped", str(out), "--json"]) == 0


def evaluated(capsys: pytest.CaptureFixture[str], *data: Path) -> dict[str, Any]:
    assert main(["eval-intent", "shipped", *map(str, data), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_how_good_the_shipped_model_is(capsys: pytest.CaptureFixture[str]) -> None:
    """The promise of the documentation, on rows it was not trained on."""
    found = evaluated(capsys, folder() / "en_test.tsv", folder() / "zh_test.tsv")
    parts = {each["language"]: each for each in found["parts"] if not each["source"]}
    for language, accuracy in (("en", 0.965), ("zh", 0.92)):
        likely, after = parts[language]["likely"], parts[language]["after"]
        strict = next(each for each in likely["classes"] if each["name"] == "strict")
        assert likely["accuracy"] >= accuracy
        assert strict["recall"] >= 0.97 and strict["precision"] >= 0.90
        assert likely["ece"] <= 0.03
        assert next(each for each in after["classes"] if each["name"] == "strict")["recall"] >= 0.93
    creative = [each for _, figures in found["open"] for each in figures["classes"] if each["name"] == "creative"]
    assert all(each["recall"] >= 0.85 for each in creative) and len(creative) == 2


def test_how_well_it_tells_scenarios(capsys: pytest.CaptureFixture[str]) -> None:
    found = evaluated(capsys, WRITTEN)
    assert {each["language"]: each["macro_f1"] >= 0.90 for each in found["scenarios"]} == {"en": True, "zh": True}

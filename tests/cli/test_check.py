"""`extproc check`: exit codes, and every mistake with its path."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from extproc.cli.main import main
from extproc.settings import defaults_text, load

LABEL = load("").parameters().label()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "c.yaml"


@pytest.mark.parametrize("content", [b"", b"{}", defaults_text()])
def test_right(file: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_bytes(content)
    assert main(["check", str(file)]) == 0
    assert capsys.readouterr() == (f"{file}: valid, parameter set {LABEL}\n", "")


def test_right_for_machines(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("parameter_set: other")
    assert main(["check", "--json", str(file)]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {"valid": True, "parameter_set": LABEL.replace("default@", "other@")}
    assert err == ""


WRONG = "nonsense: 1\nlimits: {max_keys: many}\n"


def test_wrong(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(WRONG)
    assert main(["check", str(file)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert sorted(err.splitlines()) == [
        f"{file}: limits.max_keys: allowed: a valid integer",
        f"{file}: nonsense: unknown key",
    ]


def test_wrong_for_machines(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(WRONG)
    assert main(["check", str(file), "--json"]) == 2
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert report["valid"] is False
    assert sorted(report["problems"], key=lambda p: str(p["path"])) == [
        {"path": "limits.max_keys", "message": "allowed: a valid integer"},
        {"path": "nonsense", "message": "unknown key"},
    ]
    assert err == ""


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"a: b: c", b"[1", b"- a"])
def test_not_a_config(file: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_bytes(content)
    assert main(["check", str(file)]) == 2
    assert capsys.readouterr().err.startswith(f"{file}: ")


@pytest.mark.parametrize(("name", "why"), [("none.yaml", "No such file or directory"), (".", "Is a directory")])
def test_no_file(tmp_path: Path, name: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / name
    assert main(["check", str(path)]) == 1
    assert capsys.readouterr().err == f"extproc: {why}: {path}\n"


@pytest.mark.parametrize(
    ("model", "why"), [("none.npz", "No such file or directory"), ("c.yaml", "not an .npz file")]
)
def test_a_model_that_is_not_here_is_a_note(
    file: Path, model: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may be there on the machine that serves."""
    path = file.with_name(model)
    file.write_text(f"intent: {{model: {path}}}")
    assert main(["check", str(file)]) == 0
    err = capsys.readouterr().err
    assert err.startswith(f"{file}: not on this machine: intent.model: {path}: ") and why in err

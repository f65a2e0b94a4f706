"""Where Envoy is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from extproc.cli.envoy_binary import find_envoy
from extproc.errors import CannotStart


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_environment_chooses_envoy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ENVOY_BIN", str(program(tmp_path / "mine")))
    assert find_envoy() == tmp_path / "mine"


@pytest.mark.parametrize("kind", ["absent", "a folder", "no program"])
def test_a_wrong_choice_is_not_papered_over(kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "a folder").mkdir()
    (tmp_path / "no program").write_text("#!/bin/sh\n")
    monkeypatch.setenv("ENVOY_BIN", str(tmp_path / kind))
    with pytest.raises(CannotStart, match="ENVOY_BIN"):
        find_envoy()


def test_the_package_of_this_interpreter_is_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENVOY_BIN", raising=False)
    assert find_envoy().parts[-3:] == ("envoy", "_bin", "envoy")


def test_path_is_last_and_a_folder_called_envoy_does_not_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ENVOY_BIN", raising=False)
    (tmp_path / "checkout" / "envoy").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "checkout")])
    monkeypatch.setenv("PATH", str(program(tmp_path / "bin" / "envoy").parent))
    assert find_envoy() == tmp_path / "bin" / "envoy"


def test_without_envoy_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ENVOY_BIN", raising=False)
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotStart, match="Envoy is not installed"):
        find_envoy()

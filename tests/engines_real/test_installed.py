"""A missing engine is a skip with the command that helps, and a failure in CI."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engines_real import installed


@pytest.fixture(autouse=True)
def empty_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(installed, "ROOT", tmp_path)
    return tmp_path


def test_missing_is_a_skip_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="the real triton is not installed: make engines"):
        installed.require("triton")


def test_missing_is_a_failure_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="make engines"):
        installed.require("triton")


def test_half_installed_is_missing(empty_root: Path) -> None:
    installed.venv("triton").mkdir(parents=True)
    assert not installed.is_installed("triton")
    (empty_root / ".engines" / "triton" / ".installed").touch()
    assert installed.is_installed("triton")
    installed.require("triton")

"""Arguments several subcommands share."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from extproc.cli.arguments import add_config, add_state_dir


@pytest.fixture
def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser()
    add_config(made)
    add_state_dir(made)
    return made


def test_defaults(parser: argparse.ArgumentParser) -> None:
    found = parser.parse_args([])
    assert (found.config, found.state_dir) == (None, Path(".extproc"))


def test_given(parser: argparse.ArgumentParser) -> None:
    found = parser.parse_args(["--config", "a/b.yaml", "--state-dir", "/run/x"])
    assert (found.config, found.state_dir) == (Path("a/b.yaml"), Path("/run/x"))

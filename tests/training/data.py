"""The shared intent data, where it is at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

WRITTEN = Path(__file__).with_name("written.tsv")


def folder() -> Path:
    """Skips the test where the data is not at hand; a failure under CI=true."""
    beside = Path(__file__).parents[3] / "shared" / "datasets"
    found = Path(os.environ.get("EXTPROC_DATA", beside)) / "intent"
    if not found.is_dir():
        missing = f"no intent data in {found}; EXTPROC_DATA names the folder of the data"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(missing)
    return found

"""The shared data, where it is at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def folder(name: str) -> Path:
    """Skips the test where the data is not at hand; a failure under CI=true."""
    beside = Path(__file__).parents[2] / "shared" / "datasets"
    found = Path(os.environ.get("EXTPROC_DATA", beside)) / name
    if not found.is_dir():
        missing = f"no data in {found}; EXTPROC_DATA names the folder of the data"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(missing)
    return found

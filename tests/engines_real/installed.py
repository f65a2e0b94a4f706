"""Where `install.sh` put an engine, and what a test does when it has not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def venv(engine: str) -> Path:
    return ROOT / ".engines" / engine


def is_installed(engine: str) -> bool:
    return (venv(engine) / ".installed").exists()


def require(engine: str, *, make: str = "engines") -> None:
    """Skip the test without this engine; fail in CI, where a missing engine would hide what it is there to show."""
    if is_installed(engine):
        return
    message = f"the real {engine} is not installed: make {make}"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)

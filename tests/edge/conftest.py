"""Shared by the edges' tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

NOBODY = 65534


@pytest.fixture
def not_root() -> Iterator[None]:
    """Root may write everywhere, so the test goes on as somebody else."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)

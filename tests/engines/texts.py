"""Captured pages, and short ones written for a test."""

from __future__ import annotations

from pathlib import Path

from extproc.engines.exposition import Points, Wanted, cut, parse

PAGES = Path(__file__).parent / "pages"


def page(engine: str) -> bytes:
    return (PAGES / f"{engine}_metrics.txt").read_bytes()


def points(text: bytes, wanted: Wanted) -> Points:
    kept = cut(text, wanted)
    assert isinstance(kept, bytes), kept
    return parse(kept, wanted)

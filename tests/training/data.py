"""The rows that the model is judged by."""

from __future__ import annotations

from pathlib import Path

from tests import datasets

WRITTEN = Path(__file__).with_name("written.tsv")


def folder() -> Path:
    return datasets.folder("intent")

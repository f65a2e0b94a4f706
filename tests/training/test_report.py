"""The report's tables fit the terminal they are shown on, and lose no figure to it."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from extproc.training import report
from extproc.training.examine import Part
from extproc.training.figures import TIERS, figures

TRUTH = np.arange(60_000) % 3
SAME = figures(TRUTH, TRUTH, [tier.value for tier in TIERS], confidence=np.ones(60_000))
PARTS = [Part("en", "", SAME, SAME), Part("zh", "utterances-zh_strict", SAME, SAME)]


@pytest.mark.parametrize(("width", "pairs"), [(80, 2), (100, 2), (120, 4), (200, 4)])
def test_nothing_is_cut(width: int, pairs: int) -> None:
    console = Console(width=width, file=io.StringIO())
    console.print(report.told(PARTS, width))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in text
    (line,) = (line for line in text.splitlines() if line.split()[:2] == ["en", "all"])
    assert line.split()[2:4] == ["60,000", "100.00"] and line.count("100.0/100.0") == pairs


def test_how_little_a_few_rows_are() -> None:
    assert "200 rows are few" in report.how_sure(0.9, 200)
    assert "few" not in report.how_sure(0.9, 20_000)

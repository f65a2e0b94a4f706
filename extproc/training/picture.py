"""Confusion and reliability as a picture. SVG, written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from extproc.training.examine import Part
from extproc.training.figures import Figures

SIDE, CELL, GAP = 240, 80, 90
BLUE, GREY = "#1f6fb2", "#8a8a8a"


def svg(parts: Sequence[Part]) -> str:
    """A row per language: who was taken for whom, and how often a confidence is right."""
    panels = [(part.language, part.likely) for part in parts if not part.source]
    height = len(panels) * (SIDE + GAP) + 30
    width = 2 * SIDE + 3 * GAP
    rows = "".join(
        f'<g transform="translate(0,{number * (SIDE + GAP) + 50})">{_confusion(title, each)}'
        f"{_reliability(each)}</g>"
        for number, (title, each) in enumerate(panels)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">'
        f'<rect width="100%" height="100%" fill="white"/>{rows}</svg>\n'
    )


def _confusion(title: str, figures: Figures) -> str:
    parts = [f'<text x="{GAP}" y="-22" font-weight="bold">{escape(title)}: true (rows) and told (columns)</text>']
    names = [each.name for each in figures.classes]
    for column, name in enumerate(names):
        parts.append(f'<text x="{GAP + (column + 0.5) * CELL}" y="-6" text-anchor="middle">{escape(name)}</text>')
    for row, (name, counts) in enumerate(zip(names, figures.confusion, strict=True)):
        middle = row * CELL + CELL / 2 + 4
        parts.append(f'<text x="{GAP - 8}" y="{middle}" text-anchor="end">{escape(name)}</text>')
        total = sum(counts) or 1
        for column, count in enumerate(counts):
            share = count / total
            x, ink = GAP + column * CELL, "white" if share > 0.5 else "black"
            parts.append(
                f'<rect x="{x}" y="{row * CELL}" width="{CELL - 2}" height="{CELL - 2}" fill="{BLUE}" '
                f'fill-opacity="{max(0.04, share):.3f}"/>'
                f'<text x="{x + CELL / 2}" y="{middle}" text-anchor="middle" fill="{ink}">{count:,}</text>'
            )
    return "".join(parts)


def _reliability(figures: Figures) -> str:
    left = SIDE + 2 * GAP
    ece = "" if figures.ece is None else f" (ECE {figures.ece:.3f})"
    parts = [
        f'<text x="{left}" y="-22" font-weight="bold">how often a confidence is right{ece}</text>',
        f'<rect x="{left}" y="0" width="{SIDE}" height="{SIDE}" fill="none" stroke="{GREY}"/>',
        f'<line x1="{left}" y1="{SIDE}" x2="{left + SIDE}" y2="0" stroke="{GREY}" stroke-dasharray="4 4"/>',
        f'<text x="{left + SIDE / 2}" y="{SIDE + 16}" text-anchor="middle">confidence, 0 to 1</text>',
    ]
    most = max((each.rows for each in figures.bins), default=1)
    for each in figures.bins:
        radius = 2 + 8 * (each.rows / most) ** 0.5
        parts.append(
            f'<circle cx="{left + each.confidence * SIDE:.1f}" cy="{SIDE - each.right * SIDE:.1f}" '
            f'r="{radius:.1f}" fill="{BLUE}" fill-opacity="0.6"/>'
        )
    return "".join(parts)

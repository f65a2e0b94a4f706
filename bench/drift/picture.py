"""The table as a picture: how long each method takes, by stream and change. SVG, written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from bench.drift.methods import CONFIRMED, KS, MANN_WHITNEY, METHODS, OURS, THRESHOLD

COLOURS = {
    OURS: "#1f6fb2",
    CONFIRMED: "#7fa6c9",
    THRESHOLD: "#c0392b",
    KS: "#e08e0b",
    MANN_WHITNEY: "#9b7fb8",
}
WIDTH, LEFT, TOP, BAR, MOST_S = 900, 190, 60, 9, 60.0


def svg(rows: Sequence[Any], changes: Sequence[str]) -> str:
    """Bars to MOST_S; what is not found reaches over the edge, hollow."""
    parts, y = [_legend()], TOP
    for row in rows:
        for change in changes:
            parts.append(_group(y, f"{row.stream}, {change}", row.delay_s[change]))
            y += BAR * len(METHODS) + 10
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 30}" '
        f'viewBox="0 0 {WIDTH} {y + 30}" font-family="sans-serif" font-size="12">'
    )
    return f'{head}<rect width="100%" height="100%" fill="white"/>{"".join(parts)}{_axis(y)}</svg>\n'


def _legend() -> str:
    parts = ['<text x="10" y="20" font-weight="bold">Seconds until a change is found (hollow: not found)</text>']
    for number, method in enumerate(METHODS):
        x = 10 + number * 175
        parts.append(f'<rect x="{x}" y="32" width="12" height="12" fill="{COLOURS[method]}"/>')
        parts.append(f'<text x="{x + 17}" y="42">{escape(method)}</text>')
    return "".join(parts)


def _group(y: float, label: str, delays: Any) -> str:
    middle = y + BAR * len(METHODS) / 2 + 4
    parts = [f'<text x="{LEFT - 10}" y="{middle:.0f}" text-anchor="end">{escape(label)}</text>']
    across = (WIDTH - LEFT - 40) / MOST_S
    for number, method in enumerate(METHODS):
        delay, colour = delays[method], COLOURS[method]
        length = (MOST_S if delay is None else min(delay, MOST_S)) * across
        fill = f'fill="none" stroke="{colour}" stroke-dasharray="3 3"' if delay is None else f'fill="{colour}"'
        parts.append(
            f'<rect x="{LEFT}" y="{y + number * BAR}" width="{max(1.0, length):.1f}" height="{BAR - 2}" {fill}/>'
        )
    return "".join(parts)


def _axis(y: float) -> str:
    across = (WIDTH - LEFT - 40) / MOST_S
    marks = (
        f'<text x="{LEFT + second * across:.0f}" y="{y + 14}" text-anchor="middle">{second} s</text>'
        for second in range(0, int(MOST_S) + 1, 10)
    )
    return f'<path d="M{LEFT},{TOP} V{y}" stroke="#444"/>{"".join(marks)}'

"""One run as a picture: weights of ours, latency and overflow of all variants over time. SVG, written by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from msgspec import Struct

from bench.load import quantile
from bench.weights.client import OVERFLOW
from bench.weights.envoy import LEAST_REQUEST, OURS, ROUND_ROBIN
from bench.weights.figures import SLICE_S
from bench.weights.measure import Run

WIDTH, HEIGHT, LEFT, RIGHT, TOP, GAP = 900, 170, 60, 150, 40, 50

COLOURS = {ROUND_ROBIN: "#c0392b", LEAST_REQUEST: "#e08e0b", OURS: "#1f6fb2"}
ENGINE_COLOURS = ("#7fa6c9", "#9bbf8f", "#1f6fb2")

Points = Sequence[tuple[float, float]]


class Line(Struct, frozen=True):
    label: str
    colour: str
    points: Points


class Panel(Struct, frozen=True):
    title: str
    lines: tuple[Line, ...]


def svg(run: Run) -> str:
    panels = (weights(run), latency(run), overflow(run))
    height = TOP + len(panels) * (HEIGHT + GAP)
    parts = [_panel(each, TOP + index * (HEIGHT + GAP), run) for index, each in enumerate(panels)]
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    return f'{head}<rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>\n'


def weights(run: Run) -> Panel:
    ports = sorted({port for each in run.weights for port in each.by_port})
    degraded = run.degraded.get(OURS)
    lines = []
    for colour, port in zip(ENGINE_COLOURS, sorted(ports, key=lambda port: port == degraded), strict=False):
        label = "degraded endpoint" if port == degraded else f"endpoint {ports.index(port) + 1}"
        lines.append(Line(label, colour, _steps(run, port)))
    return Panel("Weights of ours, % of the total", tuple(lines))


def _steps(run: Run, port: int) -> Points:
    found: list[tuple[float, float]] = []
    for each in run.weights:
        share = 100 * each.by_port.get(port, 0) / (sum(each.by_port.values()) or 1)
        if found:
            found.append((each.at_s, found[-1][1]))
        found.append((each.at_s, share))
    return found


def latency(run: Run) -> Panel:
    return Panel("P99 of the answers, ms", tuple(_lines(run, _p99)))


def _p99(run: Run, variant: str, indices: Sequence[int]) -> float:
    seen = run.seen[variant]
    good = sorted(seen.latency_s[index] for index in indices if seen.status[index] == 200)
    return 1000 * quantile(good, 0.99) if good else 0.0


def overflow(run: Run) -> Panel:
    return Panel("Requests that ran out of memory, %", tuple(_lines(run, _overflowed)))


def _overflowed(run: Run, variant: str, indices: Sequence[int]) -> float:
    status = run.seen[variant].status
    return 100 * sum(status[index] == OVERFLOW for index in indices) / len(indices)


def _lines(run: Run, figure) -> Iterable[Line]:  # type: ignore[no-untyped-def]
    slices: dict[int, list[int]] = {}
    for index, at in enumerate(run.work.at_s):
        slices.setdefault(int(at // SLICE_S), []).append(index)
    for variant, colour in COLOURS.items():
        if variant in run.seen:
            points = [((number + 0.5) * SLICE_S, figure(run, variant, each)) for number, each in slices.items()]
            yield Line(variant, colour, points)


def _panel(panel: Panel, top: float, run: Run) -> str:
    end_s = run.half_s * 2
    most = max((y for line in panel.lines for _, y in line.points), default=0) * 1.05 or 1.0
    across = (WIDTH - LEFT - RIGHT) / end_s

    def place(at: float, value: float) -> str:
        return f"{LEFT + min(max(at, 0.0), end_s) * across:.1f},{top + HEIGHT * (1 - value / most):.1f}"

    parts = [
        f'<text x="{LEFT}" y="{top - 8}" font-weight="bold">{escape(panel.title)}</text>',
        _axes(top, most, end_s),
    ]
    half = LEFT + run.half_s * across
    if run.degraded:
        parts.append(f'<path d="M{half:.1f},{top} v{HEIGHT}" stroke="#888" stroke-dasharray="4 3"/>')
    for index, line in enumerate(panel.lines):
        way = " ".join(place(*point) for point in line.points)
        parts.append(f'<polyline points="{way}" fill="none" stroke="{line.colour}" stroke-width="1.5"/>')
        y = top + 14 + 18 * index
        parts.append(f'<text x="{WIDTH - RIGHT + 10}" y="{y}" fill="{line.colour}">{escape(line.label)}</text>')
    return "".join(parts)


def _axes(top: float, most: float, end_s: float) -> str:
    bottom, right = top + HEIGHT, WIDTH - RIGHT
    marks = [f'<path d="M{LEFT},{top} V{bottom} H{right}" fill="none" stroke="#444"/>']
    for part in (0, 0.5, 1):
        y = bottom - HEIGHT * part
        marks.append(f'<text x="{LEFT - 8}" y="{y + 4:.0f}" text-anchor="end">{_label(most * part)}</text>')
        x = LEFT + (right - LEFT) * part
        marks.append(f'<text x="{x:.0f}" y="{bottom + 16}" text-anchor="middle">{end_s * part:.0f} s</text>')
    return "".join(marks)


def _label(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

"""Readings made safe: a value outside what its unit allows is not known, rather than believed or clamped away."""

from __future__ import annotations

from collections.abc import Sequence

from extproc.engines.exposition import Points, gauges

SLACK = 0.01
"""How far above 1 a fraction may stand and still be read as 1: exporters round, and count a page twice."""


def fraction(value: float | None) -> float | None:
    """In [0, 1]. Beyond the slack it is not known: a percentage would call every endpoint full."""
    if value is None or not 0 <= value <= 1 + SLACK:
        return None
    return min(value, 1.0)


def latency_s(value: float | None) -> float | None:
    """Not negative, and below a day."""
    return value if value is not None and 0 <= value < 86_400 else None


def count(value: float | None) -> float | None:
    return value if value is not None and value >= 0 else None


def most(values: Sequence[float]) -> float | None:
    return max(values, default=None)


def summed(values: Sequence[float]) -> float | None:
    """Requests over all series; None where there is none."""
    return count(sum(values)) if values else None


def ratio_by(points: Points, part: str, whole: str, *, label: str) -> float | None:
    """The highest `part / whole` over devices, paired by `label`; None where no pair is complete."""
    found = []
    for device in {point.labels.get(label, "") for point in points if point.name == part}:
        match = {label: device} if device else {}
        used, total = most(gauges(points, part, **match)), most(gauges(points, whole, **match))
        share = fraction(used / total) if used is not None and total else None
        if share is not None:
            found.append(share)
    return most(found)

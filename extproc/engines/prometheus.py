"""Answers of a monitoring server's queries as samples. One query asks for one term of an `EngineSample`.

What PromQL to ask is configured; what it is about is the term's name, which the points carry. Fractions are in
[0, 1], latencies in seconds, `running` and `waiting` requests.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from extproc.engines.exposition import Point, Points
from extproc.engines.joining import TERMS, of_terms, worst
from extproc.engines.terms import count, fraction, latency_s
from extproc.model.telemetry import EngineSample


def samples(points: Points, *, label: str, now: float) -> Mapping[str, EngineSample]:
    """By the value of `label`, the worst where several results carry it. A result without it is left out."""
    groups: dict[str, list[EngineSample]] = {}
    for point in points:
        value, sample = point.labels.get(label), _sample(point, now)
        if value is not None and sample is not None:
            groups.setdefault(value, []).append(sample)
    return {value: seen for value, found in groups.items() if (seen := worst(found))}


def _sample(point: Point, now: float) -> EngineSample | None:
    """None where the value is not one the term can have; an empty quantile is NaN."""
    if point.name not in TERMS or not math.isfinite(point.value):
        return None
    value = _safe(point.name, point.value)
    return None if value is None else of_terms({point.name: value}, at=now)


def _safe(term: str, value: float) -> float | None:
    if term.endswith("_s"):
        return latency_s(value)
    return count(value) if term in ("running", "waiting") else fraction(value)

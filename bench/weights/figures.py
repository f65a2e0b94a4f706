"""From what became of each request to the figures of a run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from msgspec import Struct

from bench.load import quantile
from bench.weights.client import LOST, OVERFLOW, Seen
from bench.weights.envoy import OURS
from bench.weights.measure import Run
from bench.weights.watch import Weights

SLICE_S = 2.0
"""Over which a share of the traffic, or the P99 of a picture, is taken."""


class Figures(Struct, frozen=True):
    """Of one variant in one run, from half-time on. Quantiles of the answers that worked, in ms.

    `react_s`: until the degraded endpoint got less than half its fair share of a slice's requests.
    `react_weight_s`: until its weight was less than half its fair share. None = never, or no weights.
    """

    requests: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    overflow: int
    lost: int
    react_s: float | None
    react_weight_s: float | None

    @property
    def overflow_percent(self) -> float:
        return 100 * self.overflow / self.requests if self.requests else 0.0


def figures(run: Run, variant: str) -> Figures:
    seen, at_s = run.seen[variant], run.work.at_s
    late = [index for index, at in enumerate(at_s) if at >= run.half_s]
    good = sorted(seen.latency_s[index] for index in late if seen.status[index] == 200)
    degraded = run.degraded.get(variant)
    engines = len(set(seen.engine) - {0}) or 1
    return Figures(
        requests=len(late),
        p50_ms=quantile(good, 0.5) * 1000,
        p95_ms=quantile(good, 0.95) * 1000,
        p99_ms=quantile(good, 0.99) * 1000,
        overflow=sum(seen.status[index] == OVERFLOW for index in late),
        lost=sum(seen.status[index] not in (200, OVERFLOW) for index in late),
        react_s=None if degraded is None else reacted(run, seen, degraded, engines),
        react_weight_s=turned(run.weights, degraded, run.half_s) if degraded and variant == OURS else None,
    )


def reacted(run: Run, seen: Seen, degraded: int, engines: int) -> float | None:
    """The end of the first slice after half-time with less than half a fair share."""
    rows = [(at, engine) for at, engine in zip(run.work.at_s, seen.engine, strict=True) if at >= run.half_s]
    for number, slice_ in groupby(rows, key=lambda row: (row[0] - run.half_s) // SLICE_S):
        found = [engine == degraded for _, engine in slice_]
        if sum(found) < len(found) / engines / 2:
            return (number + 1) * SLICE_S
    return None


def turned(weights: Sequence[Weights], degraded: int, half_s: float) -> float | None:
    for each in weights:
        fair = sum(each.by_port.values()) / len(each.by_port)
        if each.at_s >= half_s and each.by_port.get(degraded, 0) < fair / 2:
            return each.at_s - half_s
    return None


def lag_ms(run: Run) -> float:
    """P99 of how late requests went out."""
    return 1000 * quantile(sorted(lag for seen in run.seen.values() for lag in seen.lag_s), 0.99)


def unanswered(run: Run) -> int:
    return sum(seen.status.count(LOST) for seen in run.seen.values())

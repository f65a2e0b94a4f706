"""What the comparison has to show, and whether it does."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from msgspec import Struct

from bench.weights.envoy import LEAST_REQUEST, OURS, ROUND_ROBIN, ROUND_ROBIN_AGAIN
from bench.weights.figures import Figures, figures
from bench.weights.measure import Run

P99_OVER_ROUND_ROBIN = 0.66
P99_OVER_LEAST_REQUEST = 1.0
OVERFLOW_PERCENT = 1.7
ROUND_ROBIN_OVERFLOW_PERCENT = 10.0
OVERFLOW_OVER_LEAST_REQUEST = 2 / 3

LEAST_NOISE = 0.01
"""Of P99: two A/A pairs that agree to four digits by luck do not make a bound."""


class Row(Struct, frozen=True):
    """One bound. `measured`: the median of the runs for latencies, all runs together for failures."""

    what: str
    measured: float
    least: float
    most: float
    bound: str
    holds: bool


def rows(runs: Sequence[Run]) -> list[Row]:
    """Of the runs of one case, which hold all variants."""
    by_name = {name: [figures(run, name) for run in runs] for name in runs[0].seen}
    noise = [b.p99_ms / a.p99_ms for a, b in _pairs(by_name, ROUND_ROBIN, ROUND_ROBIN_AGAIN)]
    found = [_spread("A/A: P99, second round robin / first", noise, "noise", True)]
    if runs[0].degraded:
        return [*found, *_degraded(by_name)]
    most = 1 + max(LEAST_NOISE, *(abs(each - 1) for each in noise))
    return [*found, _ratio(by_name, ROUND_ROBIN, most), _ratio(by_name, LEAST_REQUEST, most)]


def _degraded(by_name: dict[str, list[Figures]]) -> list[Row]:
    ours, round_robin, least = (_overflow(by_name[name]) for name in (OURS, ROUND_ROBIN, LEAST_REQUEST))
    times = ours / least if least else float(bool(ours))
    return [
        _ratio(by_name, ROUND_ROBIN, P99_OVER_ROUND_ROBIN),
        _ratio(by_name, LEAST_REQUEST, P99_OVER_LEAST_REQUEST),
        _over(
            by_name, ROUND_ROBIN, f">= {ROUND_ROBIN_OVERFLOW_PERCENT}", round_robin >= ROUND_ROBIN_OVERFLOW_PERCENT
        ),
        _over(by_name, OURS, f"<= {OVERFLOW_PERCENT}", ours <= OVERFLOW_PERCENT),
        Row(
            "overflow, ours / least request (sums)",
            times,
            times,
            times,
            f"<= {OVERFLOW_OVER_LEAST_REQUEST:.2f}",
            times <= OVERFLOW_OVER_LEAST_REQUEST,
        ),
    ]


def _pairs(by_name: dict[str, list[Figures]], one: str, other: str) -> list[tuple[Figures, Figures]]:
    return list(zip(by_name[one], by_name[other], strict=True))


def _ratio(by_name: dict[str, list[Figures]], other: str, bound: float) -> Row:
    values = [ours.p99_ms / its.p99_ms for its, ours in _pairs(by_name, other, OURS)]
    return _spread(f"P99, ours / {other}", values, f"<= {bound:.2f}", median(values) <= bound)


def _over(by_name: dict[str, list[Figures]], name: str, bound: str, holds: bool) -> Row:
    each = [found.overflow_percent for found in by_name[name]]
    return Row(f"overflow of {name}, %", _overflow(by_name[name]), min(each), max(each), bound, holds)


def _overflow(found: Sequence[Figures]) -> float:
    return 100 * sum(each.overflow for each in found) / sum(each.requests for each in found)


def _spread(what: str, values: Sequence[float], bound: str, holds: bool) -> Row:
    return Row(what, median(values), min(values), max(values), bound, holds)

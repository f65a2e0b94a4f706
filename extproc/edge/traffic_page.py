"""What goes through as plain values: what `/traffic` shows, and the status page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from extproc.loops.recent import RATE_WINDOW_S, Passed
from extproc.windows.latency import LatencyReading

NONE = "none"

QUANTILES = ("p50_s", "p95_s", "p99_s", "first_byte_p50_s", "first_byte_p99_s")


def describe(
    rates: Mapping[tuple[str, str], float],
    latency: Mapping[tuple[str, str], LatencyReading],
    last: Iterable[Passed],
    audit: Iterable[bytes],
) -> dict[str, object]:
    """`rates` by (tier, class), `latency` by (pool, tier); `audit` are JSON lines of the audit file."""
    return {
        "rate_window_s": RATE_WINDOW_S,
        "rates": [
            {"tier": tier or NONE, "class": request_class or NONE, "per_s": round(per_s, 2)}
            for (tier, request_class), per_s in rates.items()
        ],
        "latency": [_latency(pool, tier, reading) for (pool, tier), reading in sorted(latency.items())],
        "last": [_passed(each) for each in last],
        "overrides": [msgspec.json.decode(line) for line in audit],
    }


def _latency(pool: str, tier: str, reading: LatencyReading) -> dict[str, object]:
    quantiles: dict[str, Any] = {name: _rounded(getattr(reading, name)) for name in QUANTILES}
    return {
        "pool": pool,
        "tier": tier or NONE,
        "requests": reading.requests,
        "error_rate": _rounded(reading.error_rate),
        **quantiles,
    }


def _passed(each: Passed) -> dict[str, object]:
    sample = each.sample
    return {
        "at": each.at,
        "pool": each.pool,
        "tier": sample.tier or NONE,
        "class": sample.request_class or NONE,
        "scenario": sample.scenario,
        "tenant": sample.tenant,
        "parameter_set": sample.params,
        "outcome": each.outcome.name.lower(),
        "status": sample.status,
        "total_s": _rounded(sample.total_s),
        "fallback": sample.fallback,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)

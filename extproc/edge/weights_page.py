"""The last tick as plain values: what `/weights` shows and `extproc weights` prints."""

from __future__ import annotations

from math import isfinite

from extproc.loops.reconcile import PoolReport, Report
from extproc.model.topology import Endpoint
from extproc.scoring.values import EndpointWeight, TermValue


def describe(report: Report | None, *, now: float) -> dict[str, object]:
    """Ages are those of this moment, `now` in the report's monotonic seconds."""
    if report is None:
        return {"tick_age_s": None, "generation": 0, "problems": [], "pools": []}
    since = max(0.0, now - report.at)
    return {
        "tick_age_s": round(since, 3),
        "generation": report.generation,
        "problems": [str(problem) for problem in report.problems],
        "pools": [_pool(pool, since) for pool in report.pools],
    }


def _pool(pool: PoolReport, since: float) -> dict[str, object]:
    weights = pool.weights
    rows = zip(pool.endpoints, weights.weights, strict=True)
    return {
        "name": pool.name,
        "engine": pool.engine,
        "role": pool.role,
        "total": weights.total,
        "saturated": weights.saturated,
        "unhealthy": pool.unhealthy,
        "endpoints": [_endpoint(pool, endpoint, each, since) for endpoint, each in rows],
    }


def _endpoint(pool: PoolReport, endpoint: Endpoint, weight: EndpointWeight, since: float) -> dict[str, object]:
    """`score` None: it has none while draining, or nobody knows anything of its pool."""
    total = pool.weights.total
    return {
        "endpoint": endpoint.key,
        "hostname": endpoint.hostname,
        "weight": weight.weight,
        "share": round(weight.weight / total, 4) if total else 0.0,
        "draining": weight.draining,
        "score": _rounded(weight.score if pool.measured else None, 4),
        "reason": weight.reason.value,
        "moved_by": weight.moved_by.value if weight.moved_by else None,
        "terms": {term.term.value: _term(term, since) for term in weight.terms},
    }


def _term(term: TermValue, since: float) -> dict[str, object]:
    return {
        "reading": _rounded(term.reading, 4),
        "utility": _rounded(term.utility, 4),
        "age_s": _rounded(None if term.age_s is None else term.age_s + since, 1),
        "freshness": term.freshness.value,
    }


def _rounded(value: float | None, digits: int) -> float | None:
    """JSON has no infinity."""
    return None if value is None or not isfinite(value) else round(value, digits)

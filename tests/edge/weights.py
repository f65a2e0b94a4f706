"""Reports of ticks, for what shows them."""

from __future__ import annotations

from typing import Any

from extproc.errors import Problem
from extproc.loops.reconcile import PoolReport, Report
from extproc.model.topology import Endpoint
from extproc.scoring.values import EndpointInput, PoolWeights, Reading, ScoringRules
from extproc.scoring.weigh import weigh

NOW = 1000.0


def endpoints(count: int) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(f"10.{at >> 16}.{at >> 8 & 255}.{at & 255}", 8000) for at in range(1, count + 1))


def given(endpoint: Endpoint, memory: float | None, p99_s: float | None = None, **more: Any) -> EndpointInput:
    """`age_s`: of both readings, 1 where it is not given."""
    at = NOW - more.pop("age_s", 1.0)
    return EndpointInput(
        key=endpoint.key,
        healthy=more.pop("healthy", True),
        memory=None if memory is None else Reading(memory, at),
        p99_s=None if p99_s is None else Reading(p99_s, at),
        max_acceptable_p99_s=1.8,
        **more,
    )


def weighed(*inputs: EndpointInput) -> PoolWeights:
    return weigh(inputs, {}, ScoringRules(), now=NOW)


def pool(name: str, *inputs: EndpointInput, hostname: str = "") -> PoolReport:
    """A pool as real scoring weighs it."""
    places = (each.key.rpartition(":") for each in inputs)
    found = tuple(Endpoint(host, int(port), hostname=hostname) for host, _, port in places)
    measured = any(each.memory is not None or each.p99_s is not None for each in inputs if each.healthy)
    return PoolReport(name, "vllm", "stable", found, weighed(*inputs), measured)


def report(*pools: PoolReport, generation: int = 1, problems: tuple[Problem, ...] = ()) -> Report:
    return Report(NOW, generation, pools, problems)


A, B, C = endpoints(3)
BUSY = pool("chat", given(A, 0.2, 0.3), given(B, 0.7, 1.2), given(C, None, None, healthy=False))
UNKNOWN = pool("dark", given(A, None), given(B, None))

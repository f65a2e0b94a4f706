"""What scoring is told of an endpoint, out of everything that is known of it.

The engine's own page comes first, then the sources that tell of many endpoints, then what the engine sent along
with answers. A source that goes on saying the same while the endpoint served requests is frozen: its reading is as
old as its last change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from extproc.engines.joining import Join, find
from extproc.engines.reading import OWN
from extproc.loops.latency import Latency, LoadReport
from extproc.loops.telemetry import Look
from extproc.model.telemetry import EngineSample
from extproc.model.topology import Endpoint
from extproc.pools import PoolSpec
from extproc.scoring.values import EndpointInput, Reading

MIN_REQUESTS = 20
"""Of a window, before its P99 is more than the slowest of a few."""

KV_USAGE = ("named_metrics.kv_cache_usage_perc", "kv_cache_usage_perc")


class SharedLook(Struct, frozen=True):
    """A look at a source that tells of many endpoints."""

    look: Look
    join: Join


class Known(Struct, frozen=True):
    """One sample of one source, and since when it can be believed; monotonic seconds."""

    sample: EngineSample
    at: float


def known(
    endpoint: Endpoint, own: Look, shared: Sequence[SharedLook], latency: Latency, *, now: float
) -> tuple[Known, ...]:
    """What the sources say of an endpoint, the most trusted first."""
    found = [(own, own.samples.get(OWN))]
    found += [(each.look, find(each.look.samples, endpoint, each.join)) for each in shared]
    return tuple(Known(sample, _at(look, endpoint, latency, now)) for look, sample in found if sample is not None)


def _at(look: Look, endpoint: Endpoint, latency: Latency, now: float) -> float:
    """When a look was still telling something new."""
    taken_at, changed_at = look.taken_at, look.page_changed_at
    assert taken_at is not None, "a look with samples was taken"
    if changed_at is None or changed_at >= taken_at:
        return taken_at
    return changed_at if latency.served_since(endpoint.key, changed_at, now=now) else taken_at


def endpoint_input(
    endpoint: Endpoint, spec: PoolSpec, sources: Iterable[Known], latency: Latency, *, healthy: bool, now: float
) -> EndpointInput:
    sources = tuple(sources)
    return EndpointInput(
        key=endpoint.key,
        healthy=healthy,
        memory=_memory(sources, latency.load_report(endpoint.key)),
        p99_s=_p99(endpoint, sources, latency, now),
        max_acceptable_p99_s=spec.max_acceptable_p99_s,
    )


def _memory(sources: Sequence[Known], load: LoadReport | None) -> Reading | None:
    """The youngest of the most trusted kind: an engine's page, else what came with its answers."""
    for source in sources:
        if source.sample.memory is not None:
            return Reading(source.sample.memory, source.at)
    return _reported(load)


def _reported(load: LoadReport | None) -> Reading | None:
    metrics: Mapping[str, float] = load.metrics if load else {}
    value = next((metrics[name] for name in KV_USAGE if name in metrics), None)
    return None if value is None or load is None else Reading(value, load.at)


def _p99(endpoint: Endpoint, sources: Sequence[Known], latency: Latency, now: float) -> Reading | None:
    """Envoy's own measure, which includes the way there; else what a source says."""
    seen = latency.reading(endpoint.key, now=now)
    if seen.p99_s is not None and seen.last_at is not None and seen.requests >= MIN_REQUESTS:
        return Reading(seen.p99_s, seen.last_at)
    told = next((each for each in sources if each.sample.p99_s is not None), None)
    return Reading(told.sample.p99_s, told.at) if told and told.sample.p99_s is not None else None

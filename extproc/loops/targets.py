"""What is scraped, and under which key it is found again.

A key names the pool as well as the endpoint: two pools may share an address, and each has its own idea of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from extproc.control import TelemetryConfig
from extproc.engines.joining import Join
from extproc.engines.reading import Source
from extproc.loops.telemetry import Target
from extproc.model.names import Engine
from extproc.model.topology import Endpoint, authority
from extproc.pools import Pool, metrics_url

SOURCES = {Engine.TRITON: Source.TRITON, Engine.VLLM: Source.VLLM, Engine.LLAMACPP: Source.LLAMACPP}


def targets(placed: Iterable[tuple[Pool, Endpoint]], telemetry: TelemetryConfig) -> Iterator[Target]:
    """Every endpoint's own page, and the sources that tell of many endpoints."""
    for pool, each in placed:
        yield Target(own(pool.name, each), SOURCES[pool.engine], metrics_url(each, pool.engine))
        if telemetry.triton_statistics and each.grpc_port is not None:
            yield Target(statistics(pool.name, each), Source.TRITON, grpc_url(each))
    for exporter in telemetry.dcgm:
        yield Target(f"dcgm/{exporter.url}", Source.DCGM, exporter.url, exporter.label)
    if telemetry.prometheus is not None:
        for term in telemetry.prometheus.queries:
            yield Target(f"prometheus/{term}", Source.PROMETHEUS, term, telemetry.prometheus.label)


def own(pool: str, endpoint: Endpoint) -> str:
    """The key of an endpoint's own page, and of its health."""
    return f"{pool}/{endpoint.key}"


def statistics(pool: str, endpoint: Endpoint) -> str:
    return f"{pool}/{endpoint.key}/statistics"


def shared(telemetry: TelemetryConfig) -> tuple[tuple[str, Join], ...]:
    """Keys of the sources that tell of many endpoints, the most trusted first, and how their labels are joined."""
    found = [(f"dcgm/{exporter.url}", _join(exporter.label)) for exporter in telemetry.dcgm]
    if telemetry.prometheus is not None:
        join = _join(telemetry.prometheus.label)
        found += [(f"prometheus/{term}", join) for term in telemetry.prometheus.queries]
    return tuple(found)


def _join(label: str) -> Join:
    """A label that carries a port names an endpoint; a host's name has none."""
    return Join.ENDPOINT if label in ("endpoint", "instance") else Join.HOST


def grpc_url(endpoint: Endpoint) -> str:
    return f"grpc{'s' if endpoint.tls else ''}://{authority(endpoint.address, endpoint.grpc_port)}"

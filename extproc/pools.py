"""Pools as the config names them: endpoints of one engine behind one Envoy cluster (Triton: two).

What a pool leaves out comes from `pool_defaults`. Endpoints are listed, read from a file that is watched, or looked
up by DNS: exactly one of the three, because two sources that disagree would take turns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv6Address
from typing import Annotated, Any
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct
from pydantic import AfterValidator, Discriminator, Field, Tag, ValidationError, model_validator

from extproc.errors import ConfigError, Problem
from extproc.model.config import SHAPE, Config, Name, problems_of
from extproc.model.names import Engine
from extproc.model.topology import MAX_PORT, Endpoint, Role, authority

MAX_ENDPOINTS = 5000
"""Of one pool: what is read from a file or DNS is bounded like everything else."""

TRITON_METRICS_PORT = 8002
GRPC_SUFFIX = "-grpc"
"""Of the second cluster of a Triton pool."""

DEFAULT_PORTS = {"http": 80, "https": 443}

Port = Annotated[int, Field(ge=1, le=MAX_PORT)]
Milliseconds = Annotated[float, Field(gt=0, le=3_600_000)]


def _host(text: str) -> str:
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if re.fullmatch(r"[A-Za-z0-9_.-]{1,253}", text):
        return text
    try:
        IPv6Address(bare)
    except ValueError:
        raise ValueError("allowed: a name or an IP address, without a port") from None
    return text


Host = Annotated[str, AfterValidator(_host)]


def _parts(url: str) -> SplitResult | None:
    """The parts of `http(s)://host:port`; None where it is something else."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    return parts if parts.scheme in DEFAULT_PORTS and parts.hostname and port != 0 else None


def _endpoint(url: str) -> str:
    parts = _parts(url)
    if parts is None or parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError(
            "allowed: http://host:port or https://host:port (ports 1 to 65535), without a path or user"
        )
    return url


def _metrics_url(url: str) -> str:
    if _parts(url) is None:
        raise ValueError("allowed: http://host:port/path or https://host:port/path")
    return url


EndpointUrl = Annotated[str, AfterValidator(_endpoint)]


class EndpointConfig(Config):
    """One engine server; `grpc_port` is Triton's."""

    address: Host
    http_port: Port
    grpc_port: Port | None = None
    metrics_url: Annotated[str, AfterValidator(_metrics_url)] | None = None


def _shape(given: Any) -> str:
    """A URL or its longer form, told apart by type: a mistake in one is not also a mistake in the other."""
    return URL if isinstance(given, str) else ENDPOINT


URL, ENDPOINT = f"{SHAPE}url", f"{SHAPE}endpoint"

EndpointList = Annotated[
    list[
        Annotated[
            Annotated[EndpointUrl, Tag(URL)] | Annotated[EndpointConfig, Tag(ENDPOINT)], Discriminator(_shape)
        ]
    ],
    Field(min_length=1, max_length=MAX_ENDPOINTS),
]


class DnsEndpoints(Config):
    """One endpoint per address a name resolves to, looked up again every `telemetry.interval_s`."""

    host: Host
    http_port: Port
    grpc_port: Port | None = None
    metrics_port: Port | None = None


class PoolLimits(Config):
    """`max_concurrency`: requests an endpoint takes, running and waiting; load is measured against it.

    `max_requests`: concurrent requests Envoy lets into the pool, of each priority.
    """

    max_concurrency: Annotated[int, Field(ge=1, le=1_000_000)]
    max_requests: Annotated[int, Field(ge=1, le=1_000_000)]


class Hardware(Config):
    """What the endpoints run on. `memory_gb`: of one GPU."""

    generation: Name
    memory_gb: Annotated[float, Field(gt=0, le=10_000)]


class Variant(Config):
    """A quantisation, relative to full precision: `accuracy` kept, `memory` and `latency` as factors."""

    accuracy: Annotated[float, Field(gt=0, le=1)]
    memory: Annotated[float, Field(gt=0, le=2)]
    latency: Annotated[float, Field(gt=0, le=10)]


class PoolDefaults(Config):
    role: Role = Field(strict=False)
    limits: PoolLimits
    max_acceptable_p99_ms: Milliseconds
    variant: Name


class Pool(Config):
    """One pool; null = `pool_defaults` say."""

    name: Name
    engine: Engine = Field(strict=False)
    endpoints: EndpointList | None = None
    endpoints_file: str | None = None
    endpoints_dns: DnsEndpoints | None = None
    role: Annotated[Role, Field(strict=False)] | None = None
    limits: PoolLimits | None = None
    max_acceptable_p99_ms: Milliseconds | None = None
    schedules_by_priority: bool | None = None
    variant: Name | None = None
    model_family: Name | None = None
    tokenizer: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    hardware: Hardware | None = None
    served_model: Annotated[str, Field(min_length=1, max_length=256)] | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Pool:
        if [self.endpoints, self.endpoints_file, self.endpoints_dns].count(None) != 2:
            raise ValueError("allowed: exactly one of endpoints, endpoints_file, endpoints_dns")
        return self

    def listed(self) -> tuple[Endpoint, ...]:
        """The endpoints that stand in the config itself."""
        return tuple(endpoint(each) for each in self.endpoints or ())


class PoolSpec(Struct, frozen=True):
    """A pool with its defaults filled in. `max_acceptable_p99_s` in seconds."""

    name: str
    engine: Engine
    role: Role
    max_concurrency: int
    max_requests: int
    max_acceptable_p99_s: float
    variant: str
    accuracy: float
    hardware: str


def specs(pools: Iterable[Pool], defaults: PoolDefaults, variants: dict[str, Variant]) -> tuple[PoolSpec, ...]:
    return tuple(_spec(pool, defaults, variants) for pool in pools)


def _spec(pool: Pool, defaults: PoolDefaults, variants: dict[str, Variant]) -> PoolSpec:
    limits = pool.limits or defaults.limits
    variant = pool.variant or defaults.variant
    return PoolSpec(
        name=pool.name,
        engine=pool.engine,
        role=pool.role or defaults.role,
        max_concurrency=limits.max_concurrency,
        max_requests=limits.max_requests,
        max_acceptable_p99_s=(pool.max_acceptable_p99_ms or defaults.max_acceptable_p99_ms) / 1000,
        variant=variant,
        accuracy=variants[variant].accuracy,
        hardware=f"{pool.hardware.generation}/{pool.hardware.memory_gb:g}GB" if pool.hardware else "",
    )


def endpoint(given: str | EndpointConfig) -> Endpoint:
    if isinstance(given, EndpointConfig):
        return Endpoint(given.address.strip("[]"), given.http_port, given.grpc_port, given.metrics_url)
    parts = urlsplit(given)
    assert parts.hostname is not None, "endpoints are validated"
    return Endpoint(parts.hostname, parts.port or DEFAULT_PORTS[parts.scheme], tls=parts.scheme == "https")


def metrics_url(given: Endpoint, engine: Engine) -> str:
    """Where an endpoint's metrics page is: as configured, else the engine's usual place."""
    if given.metrics_url is not None:
        return given.metrics_url
    port = TRITON_METRICS_PORT if engine is Engine.TRITON else given.http_port
    return f"{'https' if given.tls else 'http'}://{authority(given.address, port)}/metrics"


class EndpointsFile(Config):
    """What an `endpoints_file` holds."""

    endpoints: EndpointList


def parse_endpoints(tree: Any) -> tuple[Endpoint, ...]:
    """Endpoints of a file's tree, each once; ConfigError with every mistake."""
    try:
        given = EndpointsFile.model_validate(tree).endpoints
    except ValidationError as error:
        raise ConfigError(problems_of(error)) from None
    endpoints = unique(endpoint(each) for each in given)
    if any(each.tls for each in endpoints):
        # TLS belongs to the cluster, which a file of endpoints cannot change.
        raise ConfigError((Problem("endpoints", "allowed: http://host:port; https only in the config itself"),))
    return endpoints


def unique(endpoints: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
    """Each address and port once, as its first is given: Envoy refuses an assignment that names one twice."""
    found: dict[str, Endpoint] = {}
    for each in endpoints:
        found.setdefault(each.key, each)
    return tuple(found.values())


def problems(pools: list[Pool], defaults: PoolDefaults, variants: dict[str, Variant]) -> Iterable[Problem]:
    """Mistakes between keys of pools that each are well-formed."""
    yield from _names(pools)
    yield from _variants(pools, defaults, variants)
    yield from _tokenizers(pools)
    yield from _endpoints(pools)


def _names(pools: list[Pool]) -> Iterable[Problem]:
    clusters: list[str] = []
    for index, pool in enumerate(pools):
        mine = [pool.name, *([pool.name + GRPC_SUFFIX] if pool.engine is Engine.TRITON else [])]
        if taken := [name for name in mine if name in clusters]:
            yield Problem(f"pools.{index}.name", f"the name {taken[0]!r} stands twice")
        if pool.name.startswith("llm_"):
            yield Problem(f"pools.{index}.name", "names starting with llm_ are taken by our own clusters")
        clusters += mine


def _variants(pools: list[Pool], defaults: PoolDefaults, variants: dict[str, Variant]) -> Iterable[Problem]:
    allowed = f"allowed: {', '.join(variants)}"
    if defaults.variant not in variants:
        yield Problem("pool_defaults.variant", f"no variant {defaults.variant!r}; {allowed}")
    for index, pool in enumerate(pools):
        if pool.variant is not None and pool.variant not in variants:
            yield Problem(f"pools.{index}.variant", f"no variant {pool.variant!r}; {allowed}")


def _tokenizers(pools: list[Pool]) -> Iterable[Problem]:
    """Lengths and caps are in tokens: two tokenizers behind one model would make them mean two things."""
    known: dict[str, Pool] = {}
    for index, pool in enumerate(pools):
        if pool.model_family is None or pool.tokenizer is None:
            continue
        first = known.setdefault(pool.model_family, pool)
        if first.tokenizer != pool.tokenizer:
            yield Problem(
                f"pools.{index}.tokenizer",
                f"allowed: {first.tokenizer!r}, as pool {first.name!r} of the family {pool.model_family!r} has it",
            )


def _endpoints(pools: list[Pool]) -> Iterable[Problem]:
    for index, pool in enumerate(pools):
        listed = pool.listed()
        if len(unique(listed)) < len(listed):
            yield Problem(f"pools.{index}.endpoints", "an address and port stands twice")
        if len({each.tls for each in listed}) > 1:
            yield Problem(
                f"pools.{index}.endpoints", "allowed: all http or all https, one cluster has one transport"
            )
        if len({each.address for each in listed if each.tls}) > 1:
            yield Problem(
                f"pools.{index}.endpoints", "allowed: one name for all https, one cluster checks one name"
            )
        if any(each.grpc_port is not None for each in listed) and pool.engine is not Engine.TRITON:
            yield Problem(f"pools.{index}.endpoints", "grpc_port is for the engine triton alone")

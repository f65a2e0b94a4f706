"""From settings, endpoints and weights to what Envoy is told: the one place where they meet."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from extproc.errors import CannotStart
from extproc.model.names import Engine
from extproc.model.topology import MAX_PORT, Endpoint, Role
from extproc.pools import GRPC_SUFFIX, Pool, PoolSpec
from extproc.resources.plan import EngineCluster, Pipe, Plan, Served, Tcp
from extproc.settings import Settings

CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")

TRACE_HEADERS = ("traceparent", "tracestate")
"""Sent by Envoy while tracing is on."""


class Standing(Struct, frozen=True):
    """How an endpoint stands: `weight` >= 1; a draining one gets no new request."""

    endpoint: Endpoint
    weight: int = 1
    draining: bool = False


Standings = Mapping[str, tuple[Standing, ...]]
"""Endpoints by the pool's name."""


def plan(settings: Settings, state_dir: Path, engines: tuple[EngineCluster, ...]) -> Plan:
    return Plan(
        engines=engines,
        ext_proc=tuple(address(each, state_dir) for each in ext_proc_listeners(settings)),
        control=address(settings.listeners.control, state_dir),
        listener=tcp(settings.listeners.envoy),
        admin=address(settings.listeners.envoy_admin, state_dir),
        fail_open=settings.failure_mode == "open",
        unknown_paths=settings.unknown_paths,
        max_body_bytes=settings.limits.max_body_bytes,
        extra_paths=tuple(settings.extra_paths),
        # Also while no key is listed: keys may come with a reload, which Envoy does not see.
        extra_allowed_headers=(settings.tenants.key_header, *(TRACE_HEADERS if settings.tracing.enabled else ())),
        usage=settings.usage.enabled,
    )


def ext_proc_listeners(settings: Settings) -> tuple[str, ...]:
    """One address per data-plane process: the configured one, or with workers `extproc-1.sock`, `extproc-2.sock`, …
    and over TCP ports from the configured one on. CannotStart where there are not so many ports."""
    configured, count = settings.listeners.ext_proc, workers(settings)
    if count == 1:
        return (configured,)
    if configured.startswith("unix:"):
        path = Path(configured.removeprefix("unix:"))
        return tuple(f"unix:{path.with_stem(f'{path.stem}-{number}')}" for number in range(1, count + 1))
    host, _, port = configured.rpartition(":")
    first = int(port)
    if first + count - 1 > MAX_PORT:
        raise CannotStart(f"no {count} ports from listeners.ext_proc {configured} on")
    return tuple(f"{host}:{first + index if first else 0}" for index in range(count))


def absolute(address: str, state_dir: Path) -> str:
    """Relative socket paths are below the state directory."""
    if not address.startswith("unix:"):
        return address
    return f"unix:{state_dir / address.removeprefix('unix:')}"


def workers(settings: Settings) -> int:
    """Data-plane processes; 1 = the one process does everything."""
    return settings.workers if settings.workers != "auto" else max(1, _cpus())


def _cpus() -> int:
    """What this process may use: its cores, and the quota of its control group."""
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = CPU_QUOTA.read_text().split()
        return cores if quota == "max" else min(cores, max(1, int(quota) // int(period)))
    except (OSError, ValueError):
        return cores


def static_plan(settings: Settings, state_dir: Path) -> Plan:
    """With the endpoints that stand in the config; CannotStart where the settings name none."""
    if not settings.pools:
        raise CannotStart("the config names no pools, so there is nothing to route to")
    if moving := [pool.name for pool in settings.pools if pool.endpoints is None]:
        raise CannotStart(f"a static Envoy config needs endpoints in the config; none in: {', '.join(moving)}")
    listed = {pool.name: tuple(map(Standing, pool.listed())) for pool in settings.pools}
    return plan(settings, state_dir, engines(settings, listed, lb_policy="LEAST_REQUEST"))


def engines(settings: Settings, standings: Standings, *, lb_policy: str) -> tuple[EngineCluster, ...]:
    """One cluster per pool, two for a Triton pool, in the order of the config; all HTTP ones before gRPC ones."""
    most = settings.protection.fallback.concurrency
    specs = [_limited(spec, most) for spec in settings.pool_specs()]
    pairs = list(zip(settings.pools, specs, strict=True))
    spoken = [_http(pool, spec, standings.get(pool.name, ()), lb_policy) for pool, spec in pairs]
    grpc = [_grpc(pool, spec, standings.get(pool.name, ()), lb_policy) for pool, spec in pairs if has_grpc(pool)]
    return (*spoken, *grpc)


def _limited(spec: PoolSpec, most: int) -> PoolSpec:
    """A light pool is small: what is sent there in an emergency must not bury it."""
    light = spec.role is Role.LIGHT and spec.max_requests > most
    return replace(spec, max_requests=most) if light else spec


def has_grpc(pool: Pool) -> bool:
    """Whether a pool has a cluster for gRPC: the config says, so that it never comes and goes with endpoints."""
    if pool.engine is not Engine.TRITON:
        return False
    if pool.endpoints_dns is not None:
        return pool.endpoints_dns.grpc_port is not None
    return pool.endpoints is None or any(each.grpc_port is not None for each in pool.listed())


def _http(pool: Pool, spec: PoolSpec, standings: Iterable[Standing], lb_policy: str) -> EngineCluster:
    ports = ((each, each.endpoint.http_port) for each in standings)
    served = tuple(_served(each, port) for each, port in ports)
    return EngineCluster(pool.name, pool.engine, served, _tls_name(pool), False, spec.max_requests, lb_policy)


def _grpc(pool: Pool, spec: PoolSpec, standings: Iterable[Standing], lb_policy: str) -> EngineCluster:
    ports = ((each, each.endpoint.grpc_port) for each in standings)
    served = tuple(_served(each, port) for each, port in ports if port is not None)
    return EngineCluster(pool.name + GRPC_SUFFIX, pool.engine, served, "", True, spec.max_requests, lb_policy)


def _served(standing: Standing, port: int) -> Served:
    endpoint = standing.endpoint
    hostname = (endpoint.hostname or endpoint.address) if endpoint.tls else ""
    return Served(endpoint.address, port, standing.weight, standing.draining, hostname)


def _tls_name(pool: Pool) -> str:
    """The name on the certificates of a pool's endpoints; "" = no TLS."""
    first = next(iter(pool.listed()), None)
    return first.address if first is not None and first.tls else ""


def tcp(text: str) -> Tcp:
    host, _, port = text.rpartition(":")
    return Tcp(host.strip("[]"), int(port))


def address(text: str, state_dir: Path) -> Tcp | Pipe:
    """An address of the config as Envoy is told it."""
    found = absolute(text, state_dir)
    return Pipe(found.removeprefix("unix:")) if found.startswith("unix:") else tcp(found)

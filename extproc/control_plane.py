"""The control side as one value: telemetry and latency in, weights and resources out.

It shares nothing with the decision side but the server it is reached at: what it learns leaves as values.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import grpc
from msgspec import Struct
from msgspec.structs import replace

from extproc.codec.xds import encode
from extproc.control import DcgmSource
from extproc.deployment import engines, plan
from extproc.edge import access_log, usage, xds
from extproc.edge.control_metrics import ControlMetrics
from extproc.edge.engine_health import EngineHealth
from extproc.edge.prometheus_query import Queries
from extproc.edge.scrape import Pages
from extproc.edge.traffic_metrics import TrafficMetrics
from extproc.edge.xds_files import XdsFiles
from extproc.engines.exposition import Points
from extproc.engines.failures import Failure
from extproc.engines.joining import Join
from extproc.engines.reading import Content, Source
from extproc.loops.board import Board
from extproc.loops.endpoints import Endpoints
from extproc.loops.health_checks import Checked, HealthChecks
from extproc.loops.latency import Latency
from extproc.loops.readings import SharedLook, endpoint_input, known
from extproc.loops.reconcile import Reconciler, Report, View, World, view_of, views_of
from extproc.loops.tasks import monotonic, spawn
from extproc.loops.telemetry import Scraper, Target
from extproc.model.names import Engine
from extproc.model.telemetry import AccessSample
from extproc.model.topology import Endpoint
from extproc.model.xds import NOTHING, Encoded, Resources
from extproc.pools import PoolSpec, metrics_url
from extproc.resources.plan import EngineCluster
from extproc.resources.template import load_template
from extproc.resources.world import fixed, resources
from extproc.scoring.values import EndpointInput
from extproc.settings import Settings

log = logging.getLogger("extproc.control_plane")

SOURCES = {Engine.TRITON: Source.TRITON, Engine.VLLM: Source.VLLM, Engine.LLAMACPP: Source.LLAMACPP}
EARLY_S = 0.05
"""A change of health or of endpoints is published this long after it: several of one moment are one push."""


class Views(Struct, frozen=True):
    """What every view is told, in the order of the world's views."""

    generation: int
    encoded: tuple[Encoded, ...]


class ControlPlane:
    """Runs between `start` and `close`, on one event loop."""

    def __init__(
        self,
        settings: Settings,
        state_dir: Path,
        *,
        metrics: ControlMetrics,
        traffic: Callable[[Callable[[str], str]], TrafficMetrics],
    ) -> None:
        """`traffic` makes the metrics of finished requests, given what names the pool of a cluster."""
        self.settings = settings
        self._state_dir = state_dir
        self._template = load_template()
        self._metrics = metrics
        self._latency = Latency(window_s=settings.weights.window_s)
        self._traffic = traffic(self._latency.pool_of)
        self.board: Board[Views] = Board(Views(0, ()))
        self._files = XdsFiles(state_dir / "xds")
        self._early = asyncio.Event()
        self._stack = contextlib.AsyncExitStack()
        self._prepared: tuple[Encoded, ...] = ()
        self._ads: xds.AdsServicer | None = None
        self.report: Report | None = None

    async def start(self) -> None:
        """Look once at endpoints, publish, then go on by itself until `close`."""
        settings = self.settings
        timeout_s = settings.telemetry.timeout_s
        self._pages = Pages(timeout_s=timeout_s)
        self._health_pages = Pages(timeout_s=settings.health.timeout_s)
        self._checker = EngineHealth(get=self._health_pages.fetch, timeout_s=settings.health.timeout_s)
        for closing in (self._pages, self._health_pages, self._checker):
            self._stack.push_async_callback(closing.close)
        self._servers = self._triton_servers()
        self._scraper = Scraper(
            fetch=self._fetch,
            observer=self._metrics,
            interval_s=settings.telemetry.interval_s,
            timeout_s=timeout_s,
            slots=settings.telemetry.max_concurrency,
        )
        self._checks = HealthChecks(
            check=self._check,
            on_change=lambda _, __: self._early.set(),
            interval_s=settings.health.interval_s,
            timeout_s=settings.health.timeout_s,
            failures=settings.health.failures,
        )
        self._endpoints = Endpoints(
            resolve=_resolve, read=_read, changed=self._moved, failed=self._metrics.endpoints_failed
        )
        world = self._world(settings)
        await self._prepare(world)
        self._reconciler = Reconciler(world, inputs=self._input, publish=self._publish)
        await self._endpoints.configure(settings.pools)
        self._moved()
        self._tick()
        group = await self._stack.enter_async_context(_Loops())
        for name, loop in (
            ("scrape", self._scraper.run()),
            ("check health", self._checks.run()),
            ("look at endpoints", self._endpoints.run()),
            ("reconcile", self._run()),
        ):
            spawn(group, loop, name=name)

    async def close(self) -> None:
        await self._stack.aclose()

    def drain(self) -> None:
        """Envoys keep what they have and look for the next server."""
        if self._ads is not None:
            self._ads.drain()

    async def configure(self, settings: Settings) -> None:
        """Follow a new config: pools, weights, views. What needs a restart is the same in it."""
        self.settings = settings
        world = self._world(settings)
        await self._prepare(world)
        self._reconciler.world = world
        await self._endpoints.configure(settings.pools)
        self._moved()
        self._tick()

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve ADS, the access log and, where it is asked for, the observer of answers."""
        log_servicer = access_log.AccessLogServicer(record=self._finished, recorder=self._traffic)
        server.add_generic_rpc_handlers((access_log.handler(log_servicer),))
        limits = self.settings.usage
        if limits.enabled:
            observer = usage.UsageObserver(
                recorder=self._traffic, max_held_bytes=limits.max_held_bytes, max_streams=limits.max_streams
            )
            server.add_generic_rpc_handlers((usage.handler(observer),))
        if self.settings.xds.enabled:
            self._ads = ads = xds.AdsServicer(
                view=self._view, board=self.board, observer=self._metrics, clock=monotonic
            )
            server.add_generic_rpc_handlers((xds.handler(ads),))

    # ── out: what Envoy is told ──────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        """A tick each interval, and one soon after a change."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.settings.telemetry.interval_s):
                    await self._early.wait()
                    await asyncio.sleep(EARLY_S)
            self._early.clear()
            try:
                await self._retain()
                self._tick()
            except Exception:
                log.exception("no weights this time: a bug")
                self._metrics.tick_failed()

    async def _retain(self) -> None:
        """Close connections to endpoints that left."""
        endpoints = {each for pool in self._endpoints.current.values() for each in pool}
        await self._checker.retain(endpoints)
        if self._servers is not None:
            await self._servers.retain({_grpc_url(each) for each in endpoints})

    def _tick(self) -> None:
        begun = monotonic()
        self.report = self._reconciler.tick(self._endpoints.current, now=begun)
        self._metrics.ticked(self.report, monotonic() - begun)

    def _world(self, settings: Settings) -> World:
        every = engines(settings, {}, lb_policy=settings.weights.lb_policy)
        return World(settings, tuple(self._with_parts(view, every) for view in views_of(settings.xds.views)))

    def _with_parts(self, view: View, every: Sequence[EngineCluster]) -> View:
        seen = tuple(each for each in every if view.sees(each))
        return replace(view, parts=fixed(self._template, plan(self.settings, self._state_dir, seen)))

    async def _prepare(self, world: World) -> None:
        """Encode what a config fixes: a tenth of a second for routes and clusters, beside the event loop."""
        built = [resources(view.parts, (), generation=1) for view in world.views]
        known = self._known(len(built))
        self._prepared = tuple(
            [await asyncio.to_thread(encode, one, old) for one, old in zip(built, known, strict=True)]
        )

    def _known(self, views: int) -> tuple[Encoded, ...]:
        """What is encoded already, for each view."""
        for encoded in (self._prepared, self.board.current.encoded):
            if len(encoded) == views:
                return encoded
        return (NOTHING,) * views

    def _publish(self, built: Sequence[Resources]) -> None:
        known, self._prepared = self._known(len(built)), ()
        encoded = tuple(encode(one, old) for one, old in zip(built, known, strict=True))
        self.board.publish(Views(self.board.current.generation + 1, encoded))
        self._files.write(built[0])

    def _view(self, node_id: str, node_cluster: str) -> Encoded | None:
        index = view_of(self._reconciler.world.views, node_id, node_cluster)
        encoded = self.board.current.encoded
        return None if index is None or index >= len(encoded) else encoded[index]

    # ── in: what is known of endpoints ───────────────────────────────────────────────────────────

    def _input(self, endpoint: Endpoint, spec: PoolSpec, *, now: float) -> EndpointInput:
        own = self._scraper.look(f"{spec.name}/{endpoint.key}")
        sources = known(endpoint, own, self._shared(spec, endpoint), self._latency, now=now)
        healthy = self._checks.condition(f"{spec.name}/{endpoint.key}").healthy
        return endpoint_input(endpoint, spec, sources, self._latency, healthy=healthy, now=now)

    def _shared(self, spec: PoolSpec, endpoint: Endpoint) -> list[SharedLook]:
        telemetry = self.settings.telemetry
        looks = [SharedLook(self._scraper.look(_dcgm_key(each)), _join(each.label)) for each in telemetry.dcgm]
        if telemetry.triton_statistics:
            looks.append(SharedLook(self._scraper.look(f"{spec.name}/{endpoint.key}/statistics"), Join.ENDPOINT))
        if telemetry.prometheus is not None:
            join = _join(telemetry.prometheus.label)
            looks += [
                SharedLook(self._scraper.look(f"prometheus/{each}"), join) for each in telemetry.prometheus.queries
            ]
        return looks

    def _finished(self, samples: list[AccessSample]) -> None:
        self._latency.record(samples, now=monotonic())
        self._traffic.finished(samples)

    async def _check(self, checked: Checked) -> Failure | None:
        return await self._checker.check(checked.engine, checked.endpoint)

    def _triton_servers(self) -> Any:
        """The client of Triton's own protocol brings numpy along: only where it is asked for."""
        if not self.settings.telemetry.triton_statistics:
            return None
        from extproc.edge.triton import Servers  # noqa: PLC0415

        servers = Servers(timeout_s=self.settings.telemetry.timeout_s)
        self._stack.push_async_callback(servers.close)
        return servers

    async def _fetch(self, target: Target) -> Content | Failure:
        if target.source is Source.PROMETHEUS:
            found: Points | Failure = await self._queries.fetch(target.url)
            return found
        if self._servers is not None and target.url.startswith("grpc"):
            statistics: Points | Failure = await self._servers.statistics(target.url)
            return statistics
        return await self._pages.fetch(target.url)

    def _moved(self) -> None:
        """Endpoints came or went: scrape, check and place those that are."""
        placed = [
            (pool, each) for pool in self.settings.pools for each in self._endpoints.current.get(pool.name, ())
        ]
        self._scraper.set_targets(self._targets([(pool.name, pool.engine, each) for pool, each in placed]))
        self._checks.set_endpoints(Checked(f"{pool.name}/{each.key}", pool.engine, each) for pool, each in placed)
        self._latency.place(
            {address: each.key for _, each in placed for address in _addresses(each)},
            {name: pool.name for pool in self.settings.pools for name in (pool.name, f"{pool.name}-grpc")},
            now=monotonic(),
        )
        self._early.set()

    def _targets(self, placed: Iterable[tuple[str, Engine, Endpoint]]) -> list[Target]:
        telemetry = self.settings.telemetry
        targets = []
        for pool, engine, each in placed:
            targets.append(Target(f"{pool}/{each.key}", SOURCES[engine], metrics_url(each, engine)))
            if telemetry.triton_statistics and each.grpc_port is not None:
                targets.append(Target(f"{pool}/{each.key}/statistics", Source.TRITON, _grpc_url(each)))
        targets += [Target(_dcgm_key(each), Source.DCGM, each.url, each.label) for each in telemetry.dcgm]
        if telemetry.prometheus is not None:
            source = telemetry.prometheus
            self._queries = Queries(get=self._pages.fetch, base_url=source.url, queries=source.queries)
            targets += [
                Target(f"prometheus/{term}", Source.PROMETHEUS, term, source.label) for term in source.queries
            ]
        return targets


class _Loops(asyncio.TaskGroup):
    """Ends with the block that opened it: its loops never end by themselves."""

    async def __aexit__(self, *error: Any) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await super().__aexit__(*error)


def _grpc_url(endpoint: Endpoint) -> str:
    host = f"[{endpoint.address}]" if ":" in endpoint.address else endpoint.address
    return f"grpc{'s' if endpoint.tls else ''}://{host}:{endpoint.grpc_port}"


def _dcgm_key(source: DcgmSource) -> str:
    return f"dcgm/{source.url}"


def _join(label: str) -> Join:
    """A label that carries a port names an endpoint; a host's name has none."""
    return Join.ENDPOINT if label in ("endpoint", "instance") else Join.HOST


def _addresses(endpoint: Endpoint) -> tuple[str, ...]:
    """As Envoy's access log spells them."""
    host = f"[{endpoint.address}]" if ":" in endpoint.address else endpoint.address
    ports = (endpoint.http_port, endpoint.grpc_port)
    return tuple(f"{host}:{port}" for port in ports if port is not None)


async def _resolve(host: str) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(each[4][0]) for each in found]


def _read(path: str) -> bytes:
    return Path(path).read_bytes()

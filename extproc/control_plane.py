"""The control side as one value: telemetry and latency in, weights and resources out.

It shares nothing with the decision side but the server it is reached at: what it learns leaves as values.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import random
import socket
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from msgspec import Struct
from msgspec.structs import replace

from extproc import yaml_text
from extproc.codec.xds import encode
from extproc.deployment import engines, plan
from extproc.edge import access_log, traffic_page, usage, xds
from extproc.edge.control_metrics import ControlMetrics
from extproc.edge.engine_health import EngineHealth
from extproc.edge.prometheus_query import Queries
from extproc.edge.scrape import Pages
from extproc.edge.traffic_metrics import TrafficMetrics
from extproc.edge.xds_files import FOLDER, XdsFiles
from extproc.engines.exposition import Points
from extproc.engines.failures import Failure
from extproc.engines.reading import Content, Source
from extproc.loops.board import Board
from extproc.loops.drift import evaluated
from extproc.loops.endpoints import RESOLVED_AT_ONCE, Endpoints, Resolve
from extproc.loops.health_checks import Checked, HealthChecks
from extproc.loops.latency import Latency
from extproc.loops.protection import LoadOf, Protector
from extproc.loops.readings import Readings
from extproc.loops.recent import Recent
from extproc.loops.reconcile import Reconciler, Report, View, World, view_of, views_of
from extproc.loops.targets import grpc_url, own, targets
from extproc.loops.tasks import monotonic, spawn, wall
from extproc.loops.telemetry import Scraper, Target
from extproc.model.telemetry import AccessSample, UsageSample
from extproc.model.topology import Endpoint, authority
from extproc.model.xds import NOTHING, Encoded, Resources
from extproc.pools import GRPC_SUFFIX, PoolSpec
from extproc.resources.plan import EngineCluster
from extproc.resources.template import load_template
from extproc.resources.world import fixed, resources
from extproc.settings import Settings
from extproc.usage.seen import Outcome as ReadOutcome

log = logging.getLogger("extproc.control_plane")

EARLY_S = 0.05
"""A change of health or of endpoints is published this long after it: several of one moment are one push."""

EARLY_TICKS = 10
"""As many times what the last tick took is waited at least, so that endpoints that flap don't fill the loop."""

LONGEST_S = 3600.0
"""For a fetch by itself: the loops, whose pace may change, end it much sooner."""


class Views(Struct, frozen=True):
    """What Envoys are told: `encoded` for each of `views`."""

    generation: int
    views: tuple[View, ...] = ()
    encoded: tuple[Encoded, ...] = ()


class ControlPlane:
    """Runs between `start` and `close`, on one event loop."""

    def __init__(
        self,
        settings: Settings,
        state_dir: Path,
        *,
        metrics: ControlMetrics,
        traffic: Callable[[Callable[[str], str]], TrafficMetrics],
        protection: Callable[[Callable[[str], str], LoadOf], Protector],
    ) -> None:
        """`traffic` makes the metrics of finished requests, given what names the pool of a cluster; `protection`
        the protection loop, given the same and what tells loads."""
        self.settings = settings
        self._state_dir = state_dir
        self._template = load_template()
        self._metrics = metrics
        self._latency = Latency(window_s=settings.weights.window_s)
        self._traffic = traffic(self._pool_of)
        self.recent = Recent(self._pool_of)
        self.protector = protection(self._pool_of, self._loads)
        self.board: Board[Views] = Board(Views(0))
        self._files = XdsFiles(state_dir / FOLDER, on_failure=metrics.file_failed)
        self._early = asyncio.Event()
        self._left = False
        self._stack = contextlib.AsyncExitStack()
        self._prepared: tuple[Encoded, ...] = ()
        self._ads: xds.AdsServicer | None = None
        self._servers: Any = None
        self._tick_s = 0.0
        self.report: Report | None = None

    async def start(self) -> None:
        """Look once at endpoints, publish, then go on by itself until `close`."""
        try:
            self._assemble(self.settings)
            await self.configure(self.settings)
            group = await self._stack.enter_async_context(_Loops())
            for name, loop in (
                ("scrape", self._scraper.run()),
                ("check health", self._checks.run()),
                ("look at endpoints", self._endpoints.run()),
                ("reconcile", self._run()),
                ("protect", self._protect()),
                ("look for drift", self._look_for_drift()),
            ):
                spawn(group, loop, name=name)
        except BaseException:
            await self._stack.aclose()
            raise

    def _assemble(self, settings: Settings) -> None:
        telemetry, health = settings.telemetry, settings.health
        self._pages, self._health_pages = Pages(timeout_s=LONGEST_S), Pages(timeout_s=LONGEST_S)
        self._checker = EngineHealth(get=self._health_pages.fetch, timeout_s=LONGEST_S)
        for closing in (self._pages, self._health_pages, self._checker):
            self._stack.push_async_callback(closing.close)
        self._scraper = Scraper(
            fetch=self._fetch,
            observer=self._metrics,
            interval_s=telemetry.interval_s,
            timeout_s=telemetry.timeout_s,
            slots=telemetry.max_concurrency,
        )
        self._checks = HealthChecks(
            check=self._check,
            on_change=lambda _, __: self._early.set(),
            interval_s=health.interval_s,
            timeout_s=health.timeout_s,
            failures=health.failures,
        )
        resolvers = ThreadPoolExecutor(RESOLVED_AT_ONCE, thread_name_prefix="resolve")
        self._stack.callback(resolvers.shutdown, wait=False, cancel_futures=True)
        self._endpoints = Endpoints(
            resolve=_resolver(resolvers), read=_read, changed=self._moved, failed=self._metrics.endpoints_failed
        )
        self._readings = Readings(telemetry, look=self._scraper.look, healthy=self._healthy, latency=self._latency)
        self._metrics.terms = lambda pool, endpoint: self._readings.terms(pool, endpoint, now=monotonic())
        self._reconciler = Reconciler(World(settings, ()), inputs=self._readings, publish=self._publish)

    async def close(self) -> None:
        await self._stack.aclose()

    def drain(self) -> None:
        """Envoys keep what they have and look for the next server."""
        if self._ads is not None:
            self._ads.drain()

    async def configure(self, settings: Settings) -> None:
        """Follow a new config: pools, telemetry, weights, views. What needs a restart is the same in it."""
        world = self._world(settings)
        await self._prepare(world)
        await self._endpoints.configure(settings.pools, names_s=settings.telemetry.interval_s)
        # From here to the tick nothing else runs: no pool is ever weighed with another config's endpoints.
        before, self.settings, self._reconciler.world = self.settings, settings, world
        self._pace(before)
        self._moved()
        self.protector.configure(settings)
        self._guard()
        self._tick()

    def _pace(self, before: Settings) -> None:
        """How often and how long: what is known of endpoints stays, but for latencies of another window."""
        telemetry, health, window_s = self.settings.telemetry, self.settings.health, self.settings.weights.window_s
        self._readings.telemetry = telemetry
        if telemetry.triton_statistics and self._servers is None:
            self._servers = self._triton_servers()
        if telemetry != before.telemetry:
            self._scraper.pace(
                interval_s=telemetry.interval_s, timeout_s=telemetry.timeout_s, slots=telemetry.max_concurrency
            )
        if health != before.health:
            self._checks.pace(interval_s=health.interval_s, timeout_s=health.timeout_s, failures=health.failures)
        if window_s != before.weights.window_s:
            self._latency = self._readings.latency = Latency(window_s=window_s)

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve ADS, the access log and, where it is asked for, the observer of answers."""
        log_servicer = access_log.AccessLogServicer(record=self._finished, recorder=self._traffic)
        server.add_generic_rpc_handlers((access_log.handler(log_servicer),))
        limits = self.settings.usage
        if limits.enabled:
            observer = usage.UsageObserver(
                recorder=self, max_held_bytes=limits.max_held_bytes, max_streams=limits.max_streams
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
                    await asyncio.sleep(max(EARLY_S, EARLY_TICKS * self._tick_s))
            self._early.clear()
            if self._left:
                self._left = False
                await self._retain()
            self._tick()

    async def _protect(self) -> None:
        """A look each interval. What Envoy is to be told of it goes out at once."""
        while True:
            await asyncio.sleep(self.settings.protection.interval_s)
            if self._guard():
                self._tick()

    async def _look_for_drift(self) -> None:
        """A bug costs this look, and nothing else."""
        while True:
            await asyncio.sleep(self.settings.drift.interval_s)
            begun = monotonic()
            try:
                verdicts = await asyncio.to_thread(evaluated, self.protector.drift_work(now=begun))
                self.protector.drift.concluded(verdicts, wall=wall())
            except Exception:
                log.exception("no look for drift this time: a bug")
                self._metrics.tick_failed()

    def _guard(self) -> bool:
        """Whether Envoy is to be told of something. A bug costs this look, and nothing else."""
        try:
            changed = self.protector.tick(
                self._endpoints.current, self._latency, now=monotonic(), wall=wall(), jitter=random.random
            )
        except Exception:
            log.exception("no look at what goes wrong this time: a bug")
            self._metrics.tick_failed()
            return False
        self._reconciler.limits = self.protector.status.limits
        return changed

    async def _retain(self) -> None:
        """Close connections to endpoints that left."""
        endpoints = {each for pool in self._endpoints.current.values() for each in pool}
        try:
            await self._checker.retain(endpoints)
            if self._servers is not None:
                await self._servers.retain({grpc_url(each) for each in endpoints})
        except Exception:
            log.exception("connections not closed: a bug")

    def _tick(self) -> None:
        """A bug in weighing costs this tick's weights, and nothing else."""
        begun = monotonic()
        try:
            self.report = self._reconciler.tick(self._endpoints.current, now=begun)
        except Exception:
            log.exception("no weights this time: a bug")
            self._metrics.tick_failed()
        else:
            self._metrics.ticked(self.report, monotonic() - begun)
        self._tick_s = monotonic() - begun

    def _world(self, settings: Settings) -> World:
        every = engines(settings, {}, lb_policy=settings.weights.lb_policy)
        return World(
            settings, tuple(self._with_parts(settings, view, every) for view in views_of(settings.xds.views))
        )

    def _with_parts(self, settings: Settings, view: View, every: Sequence[EngineCluster]) -> View:
        seen = tuple(each for each in every if view.sees(each))
        return replace(view, parts=fixed(self._template, plan(settings, self._state_dir, seen)))

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
        self.board.publish(Views(self.board.current.generation + 1, self._reconciler.world.views, encoded))
        self._files.write(built[0])

    def _view(self, node_id: str, node_cluster: str) -> Encoded | None:
        """None refuses an Envoy; one of a view that nothing was published for waits."""
        told = self.board.current
        index = view_of(told.views or self._reconciler.world.views, node_id, node_cluster)
        if index is None:
            return None
        return told.encoded[index] if told.encoded else NOTHING

    # ── in: what is known of endpoints ───────────────────────────────────────────────────────────

    def _healthy(self, key: str) -> bool:
        return self._checks.condition(key).healthy

    def _pool_of(self, cluster: str) -> str:
        return self._latency.pool_of(cluster)

    def _finished(self, samples: list[AccessSample]) -> None:
        now = monotonic()
        self._latency.record(samples, now=now)
        self.protector.record(samples, now=now)
        self._traffic.finished(samples)
        self.recent.finished(samples, now=now, wall=wall())

    def traffic(self, audit: Iterable[bytes]) -> dict[str, object]:
        """What goes through, for people; `audit` are the last JSON lines of the audit file."""
        now = monotonic()
        return traffic_page.describe(
            self.recent.rates(now=now), self._latency.by_tier(now=now), self.recent.last(), audit
        )

    def usage_ended(self, outcome: ReadOutcome, reason: str) -> None:
        self._traffic.usage_ended(outcome, reason)

    def usage(self, sample: UsageSample) -> None:
        self._traffic.usage(sample)
        self.protector.usage(sample)

    def _loads(self, spec: PoolSpec, endpoints: Sequence[Endpoint], now: float) -> Iterable[float | None]:
        return self._readings.loads(spec, endpoints, now)

    async def _check(self, checked: Checked) -> Failure | None:
        return await self._checker.check(checked.engine, checked.endpoint)

    def _triton_servers(self) -> Any:
        """The client of Triton's own protocol brings numpy along: only where it is asked for."""
        from extproc.edge.triton import Servers  # noqa: PLC0415

        servers = Servers(timeout_s=LONGEST_S)
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
        pools, current = self.settings.pools, self._endpoints.current
        placed = [(pool, each) for pool in pools for each in current.get(pool.name, ())]
        if (source := self.settings.telemetry.prometheus) is not None:
            self._queries = Queries(get=self._pages.fetch, base_url=source.url, queries=source.queries)
        self._scraper.set_targets(targets(placed, self.settings.telemetry))
        self._checks.set_endpoints(Checked(own(pool.name, each), pool.engine, each) for pool, each in placed)
        self._latency.place(
            {address: each.key for _, each in placed for address in _addresses(each)},
            {name: pool.name for pool in pools for name in (pool.name, pool.name + GRPC_SUFFIX)},
            now=monotonic(),
        )
        self._left = True
        self._early.set()


class _Loops(asyncio.TaskGroup):
    """Ends with the block that opened it: its loops never end by themselves."""

    async def __aexit__(self, *error: Any) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await super().__aexit__(*error)


def _addresses(endpoint: Endpoint) -> tuple[str, ...]:
    """As Envoy's access log spells them."""
    ports = (endpoint.http_port, endpoint.grpc_port)
    return tuple(authority(endpoint.address, port) for port in ports if port is not None)


def _resolver(threads: ThreadPoolExecutor) -> Resolve:
    """Names on threads of their own: a name server that is silent must not hold up files, audit and config."""

    async def resolve(host: str) -> list[str]:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(threads, _addresses_of, host)
        return [address for address in found if "%" not in address]  # no zones: Envoy takes none

    return resolve


def _addresses_of(host: str) -> list[str]:
    return [str(each[4][0]) for each in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]


def _read(path: str) -> bytes:
    """No more than can be read, and of nothing that never ends."""
    file = Path(path)
    if file.exists() and not file.is_file():
        raise OSError(errno.EINVAL, "is no file")
    with file.open("rb") as opened:
        return opened.read(yaml_text.MAX_BYTES + 1)

"""The composition root: settings become objects, objects run in one TaskGroup until a signal drains them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from extproc import __version__
from extproc.config_source import ConfigSource
from extproc.control_plane import ControlPlane
from extproc.data_plane import DataPlane, Merging
from extproc.deployment import absolute, workers
from extproc.edge import (
    admin,
    config_file,
    ext_proc,
    grpc_server,
    health,
    live_page,
    operator_socket,
    protection_page,
    secrets,
    usage,
    weights_page,
)
from extproc.edge.audit_file import AuditFile
from extproc.edge.control_metrics import ControlMetrics
from extproc.edge.incidents import Incidents
from extproc.edge.metrics import Metrics
from extproc.edge.protection_metrics import ProtectionMetrics
from extproc.edge.span_export import SpanExport
from extproc.edge.state_file import StateFile
from extproc.edge.traffic_metrics import TrafficMetrics
from extproc.edge.webhook import Webhook
from extproc.errors import CannotStart
from extproc.guarding import Keeper, Operations
from extproc.loops import breakers
from extproc.loops.board import Board
from extproc.loops.drift import DriftWatch
from extproc.loops.lengths import LengthWatch
from extproc.loops.parameter_history import ParameterHistory
from extproc.loops.protection import LoadOf, Protector
from extproc.loops.reload import Reloader
from extproc.loops.tasks import spawn
from extproc.model.commands import RecordDecision
from extproc.recorded import Recorded
from extproc.serving import serve
from extproc.settings import Settings
from extproc.snapshot import Snapshot
from extproc.unsure import UnsureTexts

log = logging.getLogger("extproc.app")

T = TypeVar("T")
R = TypeVar("R")

CONTROL_MESSAGE_BYTES = 4 << 20

ENVOY_FOLLOWS_S = 0.3
"""A new cluster is warm within 25 ms of its push; requests wait this long for it to be so everywhere."""


@dataclass(frozen=True, slots=True)
class Listening:
    """What a running sidecar listens on."""

    ext_proc: str
    control: str
    admin: str
    metrics: str | None
    audit: Path


class Recorder:
    """Counts, and hands audit records to the audit file."""

    def __init__(self, counts: Recorded, audit: AuditFile) -> None:
        self._decided = counts.decided
        self._audit = audit
        self.passed = counts.passed
        self.rejected = counts.rejected
        self.decision_seconds = counts.decision_seconds
        self.stream_opened = counts.stream_opened
        self.stream_ended = counts.stream_ended

    def settle(self) -> None:
        """The audit file has a thread of its own."""

    def decided(self, record: RecordDecision) -> None:
        self._decided(record)
        if record.audit_lines:
            self._audit.append(record.audit_lines)


class Sidecar:
    """The sidecar as a value that runs once: `async with` starts it, leaving the block drains it."""

    def __init__(self, source: ConfigSource, state_dir: Path) -> None:
        self._source = source
        self._settings = source.settings
        self._state_dir = state_dir
        self._started = time.monotonic()
        self._not_ready: str | None = "starting"
        self._stack = AsyncExitStack()
        self._health = health.Health()
        self._workers: DataPlane | None = None
        self._unsure = UnsureTexts(state_dir, 0, lambda: source.settings.intent.keep_bytes)
        source.unsure = self._unsure
        self._history = source.history = ParameterHistory(
            StateFile(state_dir / "parameters.json").load(),
            save=StateFile(state_dir / "parameters.json").save,
            wall=time.time,
        )
        self._reloading = threading.Lock()

    async def __aenter__(self) -> Listening:
        try:
            return await self._start()
        except BaseException:
            await self._stack.aclose()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._not_ready = "draining"
        await self._stack.aclose()

    async def served(self) -> None:
        """Somebody takes requests: with workers a moment after the start."""
        if self._workers is not None:
            await self._workers.served()

    async def _start(self) -> Listening:
        content = self._source.read()
        self._board = Board(self._source.build(content, 1))
        self._group = await self._stack.enter_async_context(asyncio.TaskGroup())
        self._keeper = Keeper(self._board, self._source.told, self._group)
        audit_path = self._state_dir / self._settings.audit.path
        self._audit = audit = self._open_audit(audit_path)
        self._merging = await self._merge_audit(audit_path, audit)
        self._metrics = Metrics(version=__version__)
        self._metrics.watch_audit(audit)
        self._metrics.published(1, self._board.current.parameter_set)
        self._metrics.waiting(len(self._source.waiting))
        self._incidents = self._report_incidents()
        self._control = ControlPlane(
            self._settings,
            self._state_dir,
            metrics=ControlMetrics(self._metrics.registry),
            traffic=lambda pool_of: TrafficMetrics(self._metrics.registry, pool_of=pool_of),
            protection=self._protector,
        )
        ProtectionMetrics(self._metrics.registry, lambda: self._control.protector, self._history)
        # The admin pages close last: readiness has to be seen while streams drain.
        admin_address = await self._serve_admin()
        metrics_address = await self._serve_metrics()
        await self._control.start()
        self._stack.push_async_callback(self._control.close)
        control = await self._serve_control()
        bound = await self._serve_ext_proc(audit)
        await self._watch_config(content)
        await self._serve_operator()
        self._not_ready = None
        return Listening(bound, control, admin_address, metrics_address, audit_path)

    def _report_incidents(self) -> Incidents:
        config, registry = self._settings.protection.events, self._metrics.registry
        lines = AuditFile(
            self._state_dir / config.path, max_bytes=config.max_bytes, keep=config.keep, max_pending=10_000
        )
        self._stack.push_async_callback(asyncio.to_thread, lines.close)
        webhook = Webhook(registry, lambda: secrets.webhook(self._source.settings))
        sending = spawn(self._group, webhook.run(), name="send incidents")
        self._stack.callback(sending.cancel)
        return Incidents(registry, lines.append, shown=config.shown, tell=webhook.tell)

    def _protector(self, pool_of: Callable[[str], str], load_of: LoadOf) -> Protector:
        file = StateFile(self._state_dir / "breakers.json")
        baselines = StateFile(self._state_dir / "baselines.json")
        file_of_lengths = StateFile(self._state_dir / "lengths.json")
        lengths = LengthWatch(file_of_lengths.load(), save=file_of_lengths.save)
        self._stack.callback(lengths.keep)
        return Protector(
            breakers.decode(file.load()),
            pool_of=pool_of,
            load_of=load_of,
            parameters=self._history,
            drift=DriftWatch(
                baselines.load(),
                self._settings.drift,
                pool_of=pool_of,
                save=lambda data: self._in_a_thread(baselines.save, data),
                report=self._incidents.report,
            ),
            lengths=lengths,
            publish=self._keeper.protect,
            report=self._incidents.report,
            save=file.save,
            reconsider=self._reconsider,
        )

    async def _serve_operator(self) -> None:
        operations = Operations(
            self._history, report=self._incidents.report, reconsider=self._reconsider, freeze=self._freeze
        )
        runner = await operator_socket.start(
            operator_socket.application(operations.acts()), self._state_dir / operator_socket.SOCKET
        )
        self._stack.push_async_callback(runner.cleanup)

    def _in_a_thread(self, call: Callable[[bytes], object], data: bytes) -> None:
        """Megabytes to the disk are not waited for by requests."""
        spawn(self._group, asyncio.to_thread(call, data), name="write baselines")

    def _freeze(self) -> int:
        return self._control.protector.drift.freeze(wall=time.time(), now=time.monotonic())

    def _reconsider(self) -> None:
        """Another parameter set may be in force: soon, in the thread where the config is read."""
        with contextlib.suppress(RuntimeError):  # shutting down
            spawn(self._group, asyncio.to_thread(self._consider), name="reconsider parameters")

    def _consider(self) -> None:
        with self._reloading:
            self._reloader.consider()

    def _open_audit(self, path: Path) -> AuditFile:
        config = self._settings.audit
        audit = AuditFile(path, max_bytes=config.max_bytes, keep=config.keep, max_pending=config.max_pending)
        self._stack.push_async_callback(asyncio.to_thread, audit.close)
        return audit

    async def _merge_audit(self, path: Path, audit: AuditFile) -> Merging:
        """Also without workers: there may have been some before."""
        merging = Merging(path, audit)
        group = await self._stack.enter_async_context(asyncio.TaskGroup())
        task = spawn(group, merging.run(), name="merge audit")
        self._stack.callback(task.cancel)
        return merging

    async def _serve_ext_proc(self, audit: AuditFile) -> str:
        if workers(self._settings) > 1:
            return await self._await_workers(audit)
        self._stack.push_async_callback(asyncio.to_thread, self._unsure.close)
        servicer = ext_proc.ExtProcServicer(
            current=lambda: self._board.current,
            recorder=Recorder(self._metrics.recorded, audit),
            wall=time.time,
            timer=time.perf_counter,
            tracer=await self._export_spans(),
        )
        address = absolute(self._settings.listeners.ext_proc, self._state_dir)
        bound, stop = await serve(self._settings, servicer, address, self._health)
        self._health.set_serving(True)
        self._stack.push_async_callback(stop, self._settings.shutdown_grace_s)
        self._stack.callback(self._health.set_serving, False)
        return bound

    async def _export_spans(self) -> SpanExport | None:
        """Ends after the last stream."""
        config, count = self._settings.tracing, self._metrics.recorded.trace_spans
        if not config.enabled:
            return None
        export = SpanExport(config, version=__version__, instance="extproc", count=count)
        group = await self._stack.enter_async_context(asyncio.TaskGroup())
        self._stack.callback(spawn(group, export.run(), name="export spans").cancel)
        return export

    async def _await_workers(self, audit: AuditFile) -> str:
        """They come by themselves: whoever started this process starts them."""
        self._workers = DataPlane(
            self._settings,
            self._state_dir,
            metrics=self._metrics,
            audit=audit,
            merging=self._merging,
            told=self._keeper.told(),
            ready=self._health.set_serving,
        )
        self._keeper.workers = self._workers
        return await self._workers.start(self._stack)

    async def _serve_control(self) -> str:
        """A server of its own: what waits here, a long answer being read for one, holds up no decision.

        It ends at once. Envoy keeps what it was told, and comes again.
        """
        server = grpc_server.server(CONTROL_MESSAGE_BYTES, usage.SERVER_OPTIONS)
        self._control.add_to(server)
        self._health.add_to(server)
        bound = grpc_server.bind(server, absolute(self._settings.listeners.control, self._state_dir))
        await server.start()
        self._stack.push_async_callback(server.stop, None)
        self._stack.callback(self._control.drain)
        return bound

    async def _serve_admin(self) -> str:
        sources = self._admin_sources()
        app = admin.application(sources)
        live_page.LivePage(lambda: admin.status_sections(sources), admin.LINKS).add_to(app)
        return await self._serve_http(app, self._settings.listeners.admin)

    async def _serve_metrics(self) -> str | None:
        address = self._settings.listeners.metrics
        if address is None:
            return None
        return await self._serve_http(admin.metrics_application(self._admin_sources()), address)

    async def _serve_http(self, application: Any, address: str) -> str:
        host, _, port = address.rpartition(":")
        runner = await admin.start(application, host.strip("[]"), int(port))
        self._stack.push_async_callback(runner.cleanup)
        return f"{host}:{runner.addresses[0][1]}"

    def _why_not_ready(self) -> str | None:
        if self._not_ready is None and self._workers is not None and not self._workers.ready:
            return "no worker is ready"
        return self._not_ready

    def _admin_sources(self) -> admin.AdminSources:
        return admin.AdminSources(
            ready=self._why_not_ready,
            config=lambda: self._source.settings.model_dump(mode="json"),
            snapshot=lambda: admin.describe(self._board.current),
            metrics=self._metrics.exposition,
            weights=lambda: weights_page.describe(self._control.report, now=time.monotonic()),
            traffic=lambda: self._control.traffic(self._audit.latest()),
            status=self._status,
            events=self._incidents.last,
            uptime=lambda: time.monotonic() - self._started,
        )

    def _status(self) -> dict[str, object]:
        protector, settings = self._control.protector, self._source.settings
        shown = protection_page.Shown(
            enabled=settings.protection.enabled,
            status=protector.status,
            breakers=protector.breakers,
            history=self._history.history,
            history_unsaved=self._history.unsaved,
            drift=protector.drift.status,
            lengths=protector.lengths.estimates(),
            incidents=self._incidents.last(),
            roles={spec.name: spec.role.value for spec in settings.pool_specs()},
        )
        return protection_page.describe(shown, wall=time.time())

    async def _watch_config(self, content: bytes) -> None:
        loop = asyncio.get_running_loop()
        reloads = _Reloads(self._metrics, self._keeper, self._source, self._control, self._workers, loop)
        self._reloader = Reloader(
            read=self._source.read,
            build=self._source.build,
            board=reloads,
            observer=reloads,
            content=content,
        )
        if self._source.path is None:
            return
        stop = asyncio.Event()
        group = await self._stack.enter_async_context(asyncio.TaskGroup())
        spawn(group, config_file.watch(self._source.path, stop, self._consider), name="watch config")
        self._stack.callback(stop.set)


@dataclass(frozen=True, slots=True)
class _Reloads:
    """From the thread of a reload to the snapshot and the metrics: those are touched on the event loop only."""

    metrics: Metrics
    keeper: Keeper
    source: ConfigSource
    control: ControlPlane
    workers: DataPlane | None
    loop: asyncio.AbstractEventLoop

    @property
    def current(self) -> Snapshot:
        return self.keeper.current

    def publish(self, snapshot: Snapshot) -> int:
        """A request never names a pool Envoy does not know: new ones come first, old ones leave last."""
        settings, before = self.source.settings, self.control.settings
        kept = {pool.name for pool in settings.pools}
        leaving = [pool for pool in before.pools if pool.name not in kept]
        moved = settings.pools != before.pools
        if moved:
            self._configure(settings.model_copy(update={"pools": [*settings.pools, *leaving]}))
            time.sleep(ENVOY_FOLLOWS_S)
        generation = self._on_loop(self.keeper.replace, snapshot)
        if self.workers is not None:
            told = self.keeper.told()
            asyncio.run_coroutine_threadsafe(self.workers.publish(told), self.loop).result()
        if leaving or not moved:
            self._configure(settings)
        return generation

    def _configure(self, settings: Settings) -> None:
        asyncio.run_coroutine_threadsafe(self.control.configure(settings), self.loop).result()

    def reloaded(self, generation: int) -> None:
        self._on_loop(self._reloaded, generation)

    def reload_failed(self, reason: str) -> None:
        self._on_loop(self.metrics.reload_failed, reason)

    def _on_loop(self, call: Callable[[T], R], argument: T) -> R:
        """What it returned, when it is done; raises what it raised."""

        async def run() -> R:
            return call(argument)

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result()

    def _reloaded(self, generation: int) -> None:
        """The parameter set came with the reload."""
        self.metrics.reloaded(generation)
        self.metrics.published(generation, self.keeper.current.parameter_set)
        self.metrics.waiting(len(self.source.waiting))


def state_directory(path: Path) -> Path:
    """The directory for sockets, audit and rendered files, made where it is missing."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotStart(f"cannot make the state directory {path}: {error.strerror}") from None
    return path.resolve()

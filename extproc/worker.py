"""A data-plane process: judges requests by the snapshots it is told, and says what became of them."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack
from pathlib import Path

from extproc import __version__, intent_model
from extproc.codec.workers import SOCKET, SnapshotTold, protection_of, snapshot_of
from extproc.deployment import absolute, ext_proc_listeners
from extproc.edge import log_lines
from extproc.edge.audit_merge import Spill
from extproc.edge.control_link import ControlLink
from extproc.edge.ext_proc import ExtProcServicer
from extproc.edge.span_export import SpanExport
from extproc.errors import CannotStart
from extproc.loops.tasks import spawn
from extproc.request.classify.intent import Unsure
from extproc.serving import Stop, serve
from extproc.settings import Reading, Settings, snapshot
from extproc.snapshot import Snapshot, protected
from extproc.unsure import UnsureTexts

log = logging.getLogger("extproc.worker")


class Worker:
    """`number` from 1 on."""

    def __init__(self, number: int, state_dir: Path) -> None:
        self._number = number
        self._state_dir = state_dir
        self._current: Snapshot | None = None
        self._keep_bytes = 0
        self._unsure = UnsureTexts(state_dir, number, lambda: self._keep_bytes)
        self._tracing: asyncio.Task[None] | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set. CannotStart where it cannot listen."""
        try:
            await self._run(stop)
        except ExceptionGroup as group:
            raise group.exceptions[0] from None

    async def _run(self, stop: asyncio.Event) -> None:
        link = ControlLink(self._state_dir / SOCKET, self._number)
        async with asyncio.TaskGroup() as group, AsyncExitStack() as stack:
            self._group = group
            linking = spawn(group, link.run(), name="control link")
            following = spawn(group, self._follow(link, stack), name="follow snapshots")
            await stop.wait()
            following.cancel()
            await stack.aclose()
            if self._tracing is not None:
                self._tracing.cancel()
                await asyncio.wait({self._tracing})
            await link.close()
            self._unsure.close()
            linking.cancel()

    async def _follow(self, link: ControlLink, stack: AsyncExitStack) -> None:
        serving = False
        before: tuple[SnapshotTold, Settings, Snapshot] | None = None
        while True:
            told = await link.snapshot()
            try:
                settings, built = await asyncio.to_thread(_built, told, before, self._unsure)
            except Exception as error:  # of another version, or a bug: it judges by the one before
                link.applied(told.generation, f"{type(error).__name__}: {error}")
                continue
            self._current, self._keep_bytes = built, settings.intent.keep_bytes
            before = (told, settings, built)
            if not serving:
                log_lines.configure(settings.logging.format)
                link.spill_to(Spill(self._state_dir / settings.audit.path, self._number))
                grace_s, stop = settings.shutdown_grace_s, await self._serve(settings, link)
                stack.push_async_callback(stop, grace_s)
                serving = True
            link.applied(told.generation)

    async def _serve(self, settings: Settings, link: ControlLink) -> Stop:
        servicer = ExtProcServicer(
            current=self._now,
            recorder=link,
            wall=time.time,
            timer=time.perf_counter,
            tracer=self._tracer(settings, link),
        )
        listeners = ext_proc_listeners(settings)
        if self._number > len(listeners):
            raise CannotStart(f"worker {self._number} has no address: there are {len(listeners)}")
        bound, stop = await serve(settings, servicer, absolute(listeners[self._number - 1], self._state_dir))
        log.info("worker %d listens on %s", self._number, bound)
        return stop

    def _tracer(self, settings: Settings, link: ControlLink) -> SpanExport | None:
        if not settings.tracing.enabled:
            return None
        export = SpanExport(
            settings.tracing, version=__version__, instance=f"worker-{self._number}", count=link.trace_spans
        )
        self._tracing = spawn(self._group, export.run(), name="export spans")
        return export

    def _now(self) -> Snapshot:
        assert self._current is not None, "nobody listens before the first snapshot"
        return self._current


def _built(
    told: SnapshotTold, before: tuple[SnapshotTold, Settings, Snapshot] | None, unsure: Unsure
) -> tuple[Settings, Snapshot]:
    """Where only the protection is another one, the rest is not built again."""
    protection = protection_of(told)
    if before is not None and (before[0].settings, before[0].secrets) == (told.settings, told.secrets):
        return before[1], protected(before[2], protection, told.generation)
    settings, secrets = snapshot_of(told)
    reading = Reading(intent_model.read(settings.intent), timer=time.perf_counter, unsure=unsure)
    built = snapshot(settings, secrets, generation=told.generation, reading=reading)
    return settings, protected(built, protection, told.generation)

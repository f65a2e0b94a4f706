"""The workers as the control process sees them: told of every snapshot, their records counted and written."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from extproc.codec.workers import SOCKET, SnapshotTold
from extproc.deployment import ext_proc_listeners
from extproc.edge import audit_merge, grpc_server
from extproc.edge.audit_file import AuditFile
from extproc.edge.metrics import Metrics
from extproc.edge.workers import Workers
from extproc.loops.tasks import spawn
from extproc.recorded import Delta
from extproc.settings import Settings

log = logging.getLogger("extproc.data_plane")

APPLIED_S = 5.0
"""How long a reload waits for workers; one that is slower follows by itself."""

MERGE_EVERY_S = 10.0
"""A look at the directory: a worker may write by itself for a while though its connection lasts."""


class Merging:
    """Records that workers wrote by themselves come into the audit file, in a thread."""

    def __init__(self, path: Path, audit: AuditFile) -> None:
        self._path = path
        self._audit = audit
        self._due = asyncio.Event()
        self._failed: tuple[str, ...] = ()

    def soon(self) -> None:
        self._due.set()

    async def run(self) -> None:
        """Until cancelled; what is cut short is done at the next start."""
        while True:
            self._due.clear()
            if await asyncio.to_thread(self.once):
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(MERGE_EVERY_S):
                    await self._due.wait()

    def once(self) -> bool:
        """Whether there is more to do. Blocks until what was found is on the disk."""
        try:
            found = audit_merge.merge(self._path, self._audit.append_waiting)
        except OSError as error:
            found = audit_merge.Merged(0, 0, (str(error),))
        if found.failed != self._failed:
            self._failed = found.failed
            if found.failed:
                log.error("records of workers are not in the audit file: %s", "; ".join(found.failed))
        if found.added:
            log.info("%d audit records of workers added, %d were known", found.added, found.known)
        return found.more


class DataPlane:
    """`told` is the first snapshot; `ready` is called with whether anybody takes requests."""

    def __init__(
        self,
        settings: Settings,
        state_dir: Path,
        *,
        metrics: Metrics,
        audit: AuditFile,
        merging: Merging,
        told: SnapshotTold,
        ready: Callable[[bool], None],
    ) -> None:
        self._listeners = ext_proc_listeners(settings)
        self._state_dir = state_dir
        self._metrics = metrics
        self._merging = merging
        self._say_ready = ready
        self._complained = False
        self._workers = Workers(self, audit, told, count=len(self._listeners))
        self.open_streams = metrics.open_elsewhere
        self.decision_seconds = metrics.recorded.decision_seconds

    @property
    def ready(self) -> bool:
        """Whether anybody takes requests."""
        return self._workers.ready > 0

    async def served(self) -> None:
        """Somebody takes requests."""
        while not self.ready:
            await self._workers.changed()

    async def start(self, stack: AsyncExitStack) -> str:
        """Listen for workers; where they will listen for requests."""
        listening, _ = grpc_server.listening(f"unix:{self._state_dir / SOCKET}")
        server = await asyncio.get_running_loop().create_unix_server(self._workers.worker, sock=listening)
        stack.callback(server.close)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        tasks = [
            spawn(group, self._workers.take(), name="take batches"),
            spawn(group, self._watch(), name="watch workers"),
        ]
        stack.callback(lambda: [task.cancel() for task in tasks])
        return ", ".join(self._listeners)

    async def publish(self, told: SnapshotTold) -> None:
        if not await self._workers.publish(told, timeout_s=APPLIED_S):
            log.warning("not every worker follows generation %d yet", told.generation)

    def joined(self) -> None:
        """It writes to no file of its own now."""
        self._merging.soon()

    def merge(self, delta: Delta) -> None:
        self._complain(self._metrics.recorded.merge(delta))

    def merge_again(self, delta: Delta) -> None:
        self._complain(self._metrics.recorded.merge_again(delta))

    def _complain(self, left_out: int) -> None:
        if left_out and not self._complained:
            self._complained = True
            log.error("%d series of a worker's metrics are of another version, and left out", left_out)

    async def _watch(self) -> None:
        while True:
            self._say_ready(self.ready)
            self._metrics.workers(expected=self._workers.count, ready=self._workers.ready)
            await self._workers.changed()

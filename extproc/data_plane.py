"""The workers as the control process sees them: told of every snapshot, their records counted and written."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
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

WAIT_S = 0.02


class DataPlane:
    """`told` is the first snapshot; `ready` is called with whether anybody takes requests."""

    def __init__(
        self,
        settings: Settings,
        state_dir: Path,
        *,
        metrics: Metrics,
        audit: AuditFile,
        told: SnapshotTold,
        ready: Callable[[bool], None],
    ) -> None:
        self._settings = settings
        self._state_dir = state_dir
        self._metrics = metrics
        self._audit = audit
        self._audit_path = state_dir / settings.audit.path
        self._say_ready = ready
        self._workers = Workers(self, audit, told)
        self._merging = asyncio.Event()

    @property
    def ready(self) -> bool:
        """Whether anybody takes requests."""
        return self._workers.ready > 0

    async def start(self, stack: AsyncExitStack) -> str:
        """Listen for workers; where they will listen for requests."""
        listening, _ = grpc_server.listening(f"unix:{self._state_dir / SOCKET}")
        server = await asyncio.get_running_loop().create_unix_server(self._workers.worker, sock=listening)
        stack.callback(server.close)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        tasks = [
            spawn(group, self._workers.take(), name="take batches"),
            spawn(group, self._merge(), name="merge audit"),
            spawn(group, self._watch(), name="watch workers"),
        ]
        stack.callback(lambda: [task.cancel() for task in tasks])
        self._merging.set()
        return ", ".join(ext_proc_listeners(self._settings))

    async def publish(self, told: SnapshotTold) -> None:
        if not await self._workers.publish(told, timeout_s=APPLIED_S):
            log.warning("not every worker follows generation %d yet", told.generation)

    def merge(self, worker: str, delta: Delta) -> None:
        self._metrics.merge(worker, delta)

    def joined(self, worker: str) -> None:
        """It writes to no file of its own now."""
        audit_merge.claim(self._audit_path, worker)
        self._merging.set()

    def gone(self, worker: str) -> None:
        self._metrics.gone(worker)

    async def _watch(self) -> None:
        while True:
            self._say_ready(self.ready)
            await self._workers.changed()

    async def _merge(self) -> None:
        while True:
            await self._merging.wait()
            self._merging.clear()
            try:
                found = await asyncio.to_thread(audit_merge.merge, self._audit_path, self._write)
            except OSError as error:
                log.error("audit files of workers are not merged: %s", error)
                continue
            if found.added:
                log.info("%d audit records of workers added, %d were known", found.added, found.known)

    def _write(self, records: Sequence[bytes]) -> None:
        """Blocks until they are written or dropped."""
        self._audit.append(records)
        goal = self._audit.written + self._audit.dropped + self._audit.pending
        while self._audit.written + self._audit.dropped < goal:
            time.sleep(WAIT_S)

"""Notices that a configuration file may have changed.

The directory is watched, not the file: a watch on the file follows its inode, which a rename-save or a
swapped `..data` link of a Kubernetes ConfigMap leaves behind for good. Everything a directory watch cannot
see (a bind-mounted file, a link into another directory, a network file system) is left to a regular look.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from watchfiles import Change, awatch
from watchfiles._rust_notify import WatchfilesRustInternalError

logger = logging.getLogger("extproc.edge.config_file")

QUIET_MS = 50
"""A burst of events ends when nothing happened for this long."""

DEBOUNCE_MS = 200
"""A burst is reported after this time even if it goes on."""


async def watch(path: Path, stop: asyncio.Event, on_change: Callable[[], object], *, poll_s: float = 3.0) -> None:
    """Call `on_change` after every change in the file's directory, and every `poll_s` without one.

    `on_change` runs in a thread, one call at a time; a stop waits for the running call, a cancellation does not.
    It has to be idempotent: neighbours of the file cause calls as well.
    """
    directory = _directory(path)
    complaint: str | None = None
    while not stop.is_set():
        try:
            await _watch_directory(directory, stop, on_change, poll_s)
        except (OSError, WatchfilesRustInternalError) as error:
            if complaint != (complaint := str(error)):
                logger.warning("%s cannot be watched, polled every %g s: %s", directory, poll_s, error)
            await _pause(stop, poll_s)
            await asyncio.to_thread(on_change)


async def _watch_directory(
    directory: Path, stop: asyncio.Event, on_change: Callable[[], object], poll_s: float
) -> None:
    """Returns on stop, and when the directory was removed or is another one: its watch is dead then.

    Both are looked at, since a directory made anew may well get the number of the removed one.
    """
    watched = _identity(directory)
    bursts = awatch(
        directory,
        watch_filter=None,
        debounce=DEBOUNCE_MS,
        step=QUIET_MS,
        stop_event=cast(Any, _Stop(stop)),
        rust_timeout=max(1, int(poll_s * 1000)),
        yield_on_timeout=True,
        recursive=False,
    )
    async with contextlib.aclosing(cast(Any, bursts)):
        async for changes in bursts:
            await asyncio.to_thread(on_change)
            if (Change.deleted, str(directory)) in changes or _identity(directory) != watched:
                return


class _Stop:
    """The caller's event, read only: `awatch` sets its stop event when it is cancelled."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop
        self._cancelled = False

    def is_set(self) -> bool:
        return self._cancelled or self._stop.is_set()

    def set(self) -> None:
        self._cancelled = True


def _directory(path: Path) -> Path:
    return path.absolute().parent


def _identity(directory: Path) -> tuple[int, int] | None:
    try:
        stat = directory.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)

"""Turns a changed configuration into a published snapshot, or keeps the old one and says why.

Content decides, not the file's time: a touch is no change, and a missed file event is made good by
the next look. Nothing that stands in a file may stop a running process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from extproc.errors import ConfigError
from extproc.snapshot import Snapshot

logger = logging.getLogger("extproc.loops.reload")

UNCHANGED = "unchanged"
RELOADED = "reloaded"
INVALID = "invalid"
UNREADABLE = "unreadable"
INTERNAL = "internal"


class Place(Protocol):
    """Where the current snapshot stands: a Board, or the way to one from another thread."""

    @property
    def current(self) -> Snapshot: ...

    def publish(self, snapshot: Snapshot) -> int:
        """The generation under which it is current: others may have published meanwhile."""
        ...


class Observer(Protocol):
    def reloaded(self, generation: int) -> None: ...

    def reload_failed(self, reason: str) -> None: ...


class Reloader:
    """`content` is what the board's first snapshot was built from, so that the first look is no reload.

    Used by one thread at a time, any thread: reading and building may take seconds.
    """

    def __init__(
        self,
        *,
        read: Callable[[], bytes],
        build: Callable[[bytes, int], Snapshot],
        board: Place,
        observer: Observer,
        content: bytes | None = None,
    ) -> None:
        self._read = read
        self._build = build
        self._board = board
        self._observer = observer
        self._considered = content
        self._good = content is not None
        self._unreadable: str | None = None

    def consider(self) -> str:
        """Look once: `unchanged`, `reloaded`, or why the old snapshot stays.

        Safe to call as often as one likes: one content is built, logged and counted once.
        """
        try:
            content = self._read()
        except OSError as error:
            return self._cannot_read(error)
        self._unreadable = None
        if content == self._considered:
            return UNCHANGED
        self._considered = content
        return self._reload(content)

    def _reload(self, content: bytes) -> str:
        self._good = False
        generation = self._board.current.generation + 1
        # A file written in place is empty for a moment, and an empty file would be valid: all defaults.
        if not content.strip():
            return self._refuse(INVALID, "the file is empty")
        try:
            snapshot = self._build(content, generation)
            generation = self._board.publish(snapshot)
        except ConfigError as error:
            return self._refuse(INVALID, "; ".join(_line(problem) for problem in error.problems))
        except OSError as error:  # a file the configuration refers to
            return self._refuse(UNREADABLE, _line(error))
        except Exception:
            logger.exception("configuration not loaded, generation %d stays: a bug", generation - 1)
            self._observer.reload_failed(INTERNAL)
            return INTERNAL
        self._good = True
        logger.info("configuration loaded, generation %d, %s", generation, snapshot.parameter_set)
        self._observer.reloaded(generation)
        return RELOADED

    def _refuse(self, reason: str, problems: str) -> str:
        stays = self._board.current.generation
        logger.error("configuration not loaded, generation %d stays: %s", stays, problems)
        self._observer.reload_failed(reason)
        return reason

    def _cannot_read(self, error: OSError) -> str:
        """One continuous failure to read is one failure.

        A good content is forgotten: when it is readable again it is loaded again, which tells the
        observer that all is well. A bad one is remembered: it has been complained about already.
        """
        message = _line(error)
        if message == self._unreadable:
            return UNREADABLE
        self._unreadable = message
        if self._good:
            self._considered = None
        return self._refuse(UNREADABLE, message)


def _line(item: object) -> str:
    return " ".join(str(item).split())

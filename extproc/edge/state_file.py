"""A small file that is replaced as a whole: what outlives a restart."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from extproc.whole_write import FILE_MODE

log = logging.getLogger("extproc.edge.state_file")


class StateFile:
    """Used from one thread at a time. A failure is logged once, until a write works again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.failures = 0
        self.failing = False

    def load(self) -> bytes | None:
        """None where there is none, or none that can be read, which is logged."""
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            log.error("%s is not readable: %s", self._path, error.strerror)
            return None

    def save(self, data: bytes) -> bool:
        """Whether it is on the disk: written beside its place, then renamed, so that no reader finds half of it."""
        beside = self._path.with_name(self._path.name + ".new")
        try:
            self._write(beside, data)
            beside.replace(self._path)
        except OSError as error:
            self.failures += 1
            if not self.failing:
                log.error("%s is not written, what is known stays in memory: %s", self._path, error.strerror)
            self.failing = True
            return False
        if self.failing:
            log.info("%s is written again", self._path)
        self.failing = False
        return True

    @staticmethod
    def _write(path: Path, data: bytes) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
        finally:
            os.close(fd)

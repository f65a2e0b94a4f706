"""Bytes at the end of a file: all of them, or an error and none."""

from __future__ import annotations

import contextlib
import os

FILE_MODE = 0o640
"""Of files with audit records: for whoever collects them, and nobody else."""


def append(fd: int, data: bytes, *, size: int) -> None:
    """To a file of `size` bytes that is opened to append; a part that was written is cut off again."""
    done = 0
    try:
        while done < len(data):
            done += os.write(fd, memoryview(data)[done:])
    except OSError:
        if done:
            with contextlib.suppress(OSError):
                os.ftruncate(fd, size)
        raise

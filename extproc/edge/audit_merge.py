"""Audit records that workers wrote by themselves, added to the audit file.

A worker writes what it does not know to be safe, so a record may be in both: those at the end of the audit file are
left out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

TAIL_BYTES = 32 << 20
"""How far back a record is looked for: four times what a worker keeps."""

CHUNK = 256
MERGING = ".merging"


class Merged(NamedTuple):
    added: int
    known: int


def spill_path(audit: Path, worker: int | str) -> Path:
    """`audit.jsonl` → `audit.1.jsonl`."""
    return audit.with_name(f"{audit.stem}.{worker}{audit.suffix}")


def claim(audit: Path, worker: int | str) -> None:
    """Take a worker's file over, so that it begins a new one. One that was claimed before is added to."""
    spilled = spill_path(audit, worker)
    if not spilled.exists():
        return
    claimed = spilled.with_name(spilled.name + MERGING)
    if not claimed.exists():
        spilled.rename(claimed)
        return
    with claimed.open("ab") as sink:
        sink.write(spilled.read_bytes())
    spilled.unlink()


def merge(audit: Path, append: Callable[[Sequence[bytes]], None]) -> Merged:
    """All that was claimed. `append` may wait; it returns when the records are safe."""
    added = known = 0
    for claimed in sorted(audit.parent.glob(f"{audit.stem}.*{audit.suffix}{MERGING}")):
        there = set(_lines(audit, TAIL_BYTES))
        new: list[bytes] = []
        for line in _lines(claimed, None):
            if line in there:
                known += 1
                continue
            new.append(line)
        for at in range(0, len(new), CHUNK):
            append(new[at : at + CHUNK])
        added += len(new)
        claimed.unlink()
    return Merged(added, known)


def _lines(path: Path, last: int | None) -> Iterator[bytes]:
    """Whole lines, of the last bytes; a line that a crash cut short is left out."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as source:
        size = path.stat().st_size
        if last is not None and size > last:
            source.seek(size - last)
            source.readline()
        yield from (line for line in source if line.endswith(b"\n"))

"""Programs of bench/native, compiled once for their sources and kept in .bench."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.errors import CannotMeasure
from bench.processes import ROOT

FOLDER = ROOT / "bench" / "native"
CACHE = ROOT / ".bench"


def place(name: str, sources: Sequence[str], recipe: object, cache: Path) -> Path:
    """Where the program stands that these sources make, in a folder of its own; `recipe`: how they are compiled."""
    told = hashlib.sha256(repr(recipe).encode())
    for source in sources:
        told.update((FOLDER / source).read_bytes())
    return cache / f"{name}-{told.hexdigest()[:12]}" / name


def make(done: Path, sources: Sequence[str], build: Callable[[Path], None]) -> None:
    """`build` makes it beside its sources, in a folder that is then renamed, so that two at once or a broken one
    leave nothing half. Programs of older sources go."""
    cache = done.parents[1]
    cache.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="building-") as name:
        room = Path(name) / done.name
        room.mkdir()
        for source in sources:
            shutil.copy(FOLDER / source, room)
        build(room)
        for old in set(cache.glob(f"{done.name}-*")) - {done.parent}:
            shutil.rmtree(old, ignore_errors=True)
        if not done.is_file():
            room.rename(done.parent)


def run(what: str, room: Path, *command: str) -> None:
    """One step of it; CannotMeasure with the last line of a compiler that fails."""
    ended = subprocess.run(command, cwd=room, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        lines = (ended.stderr or ended.stdout).strip().splitlines()
        raise CannotMeasure(f"{command[0]} cannot build {what}: {lines[-1] if lines else 'no word'}")

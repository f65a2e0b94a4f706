"""The native engine and client, compiled where needed: in Python their own jitter would hide what is measured."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from bench.errors import CannotMeasure
from bench.processes import ROOT

SOURCES = ("sse.cc", "sse_client.h", "sse_engine.h", "sse_waiting.h")
FOLDER = ROOT / "bench" / "native"
CACHE = ROOT / ".bench"

COMPILER = "g++"
FLAGS = ("-std=c++17", "-O2", "-Wall", "-Wextra")


def program(cache: Path = CACHE) -> Path:
    """The program as its sources stand; its name tells them apart. CannotMeasure where it cannot be made."""
    text = b"\0".join([repr(FLAGS).encode(), *((FOLDER / each).read_bytes() for each in SOURCES)])
    made = cache / f"sse-{hashlib.sha256(text).hexdigest()[:16]}"
    if not made.exists():
        cache.mkdir(exist_ok=True)
        _compile(made)
        _forget(cache, made)
    return made


def _compile(made: Path) -> None:
    compiler = shutil.which(COMPILER)
    if compiler is None:
        raise CannotMeasure(f"{COMPILER} is not installed: apt-get install g++")
    beside = made.with_name(f"{made.name}.{os.getpid()}")  # another run may make the same one now
    command = [compiler, *FLAGS, "-o", str(beside), str(FOLDER / "sse.cc")]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise CannotMeasure(f"{COMPILER} ended with {run.returncode}: {run.stderr.strip()[-300:]}")
    beside.replace(made)


def _forget(cache: Path, made: Path) -> None:
    """Programs of older sources; one that is being made has a dot in its name."""
    for each in cache.glob("sse-*"):
        if each != made and "." not in each.name:
            each.unlink(missing_ok=True)

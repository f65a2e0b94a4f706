"""The native engine and client, compiled where needed: in Python their own jitter would hide what is measured."""

from __future__ import annotations

import shutil
from pathlib import Path

from bench import compiled
from bench.compiled import CACHE
from bench.errors import CannotMeasure

SOURCES = ("sse.cc", "sse_client.h", "sse_engine.h", "sse_waiting.h")
COMPILER = "g++"
FLAGS = ("-std=c++17", "-O2", "-Wall", "-Wextra")


def program(cache: Path = CACHE) -> Path:
    """The program as its sources stand. CannotMeasure where it cannot be made."""
    done = compiled.place("sse", SOURCES, FLAGS, cache)
    if not done.is_file():
        compiled.make(done, SOURCES, _build)
    return done


def _build(room: Path) -> None:
    if shutil.which(COMPILER) is None:
        raise CannotMeasure(f"{COMPILER} is not installed: apt-get install g++")
    compiled.run("the SSE engine", room, COMPILER, *FLAGS, "-o", "sse", "sse.cc")

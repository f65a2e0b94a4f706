"""The native no-op of bench/native, compiled once: the limit of what any ext_proc server over gRPC costs.

`python -m bench.native_server` compiles it ahead, which takes a quarter of a minute.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.errors import CannotMeasure
from bench.processes import ROOT

FOLDER = ROOT / "bench" / "native"
SOURCES = ("ext_proc.proto", "noop.cc")
CACHE = ROOT / ".bench"
PROGRAMS = ("protoc", "grpc_cpp_plugin", "g++")
PACKAGES = ("libgrpc++-dev", "libprotobuf-dev", "protobuf-compiler-grpc", "protobuf-compiler", "g++")
FLAGS = ("-O2", "-std=c++17")
# grpc++ alone does not name all the libraries it needs.
LIBRARIES = ("-Wl,--copy-dt-needed-entries", "-lgrpc++", "-lgrpc", "-lgpr", "-lprotobuf")

Say = Callable[[str], None]


def built(say: Say) -> Path | None:
    """The program, compiled where its sources changed since. None without a compiler, which is told; under CI=true
    that is an error."""
    done = CACHE / f"native-{_digest()}" / "noop"
    if done.is_file():
        return done
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        told = f"no native no-op: {', '.join(missing)} not installed (apt-get install {' '.join(PACKAGES)})"
        if os.environ.get("CI") == "true":
            raise CannotMeasure(told)
        say(told)
        return None
    say("compiling the native no-op, once")
    _build(done)
    return done


def _digest() -> str:
    """Of the sources, and of how they are compiled."""
    told = hashlib.sha256(repr((FLAGS, LIBRARIES)).encode())
    for source in SOURCES:
        told.update((FOLDER / source).read_bytes())
    return told.hexdigest()[:12]


def _build(done: Path) -> None:
    """In a folder aside that is then renamed, so that two at once or a broken one leave nothing half."""
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="building-") as name:
        room = Path(name) / "native"
        room.mkdir()
        for source in SOURCES:
            shutil.copy(FOLDER / source, room)
        plugin = f"--plugin=protoc-gen-grpc={shutil.which('grpc_cpp_plugin')}"
        _run(room, "protoc", "-I.", "--cpp_out=.", "--grpc_out=.", plugin, "ext_proc.proto")
        _run(room, "g++", *FLAGS, "-o", "noop", "noop.cc", "ext_proc.pb.cc", "ext_proc.grpc.pb.cc", *LIBRARIES)
        for old in set(CACHE.glob("native-*")) - {done.parent}:
            shutil.rmtree(old, ignore_errors=True)
        if not done.is_file():
            room.rename(done.parent)


def _run(room: Path, *command: str) -> None:
    run = subprocess.run(command, cwd=room, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        lines = (run.stderr or run.stdout).strip().splitlines()
        raise CannotMeasure(f"{command[0]} cannot build the native no-op: {lines[-1] if lines else 'no word'}")


def main() -> int:
    try:
        built(lambda what: print(f"bench: {what}", file=sys.stderr))
    except CannotMeasure as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

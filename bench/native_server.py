"""The native no-op of bench/native, compiled once: the limit of what any ext_proc server over gRPC costs.
And the client that keeps a rate.

`python -m bench.native_server` compiles both ahead, which takes half a minute.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from bench import compiled
from bench.compiled import CACHE
from bench.errors import CannotMeasure

SOURCES = ("ext_proc.proto", "noop.cc")
CLIENT_SOURCES = ("paced.cc",)
PROGRAMS = ("protoc", "grpc_cpp_plugin", "g++")
PACKAGES = ("libgrpc++-dev", "libprotobuf-dev", "protobuf-compiler-grpc", "protobuf-compiler", "g++")
FLAGS = ("-O2", "-std=c++17")
# grpc++ alone does not name all the libraries it needs.
LIBRARIES = ("-Wl,--copy-dt-needed-entries", "-lgrpc++", "-lgrpc", "-lgpr", "-lprotobuf")

Say = Callable[[str], None]


def built(say: Say) -> Path | None:
    """The server, compiled where its sources changed since. None without a compiler, which is told; under CI=true
    that is an error."""
    return _program(("noop", "no-op"), SOURCES, _build, say)


def client(say: Say) -> Path | None:
    """The client, likewise."""
    return _program(("paced", "client"), CLIENT_SOURCES, _build_client, say)


def _program(
    names: tuple[str, str], sources: Sequence[str], build: Callable[[Path], None], say: Say
) -> Path | None:
    """`names`: of the file, and as it is told."""
    name, what = names
    done = compiled.place(name, sources, (FLAGS, LIBRARIES), CACHE)
    if done.is_file():
        return done
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        told = f"no native {what}: {', '.join(missing)} not installed (apt-get install {' '.join(PACKAGES)})"
        if os.environ.get("CI") == "true":
            raise CannotMeasure(told)
        say(told)
        return None
    say(f"compiling the native {what}, once")
    compiled.make(done, sources, build)
    return done


def _build(room: Path) -> None:
    plugin = f"--plugin=protoc-gen-grpc={shutil.which('grpc_cpp_plugin')}"
    _run(room, "protoc", "-I.", "--cpp_out=.", "--grpc_out=.", plugin, "ext_proc.proto")
    _run(room, "g++", *FLAGS, "-o", "noop", "noop.cc", "ext_proc.pb.cc", "ext_proc.grpc.pb.cc", *LIBRARIES)


def _build_client(room: Path) -> None:
    compiled.run("the native client", room, "g++", *FLAGS, "-o", "paced", "paced.cc", *LIBRARIES)


_run = partial(compiled.run, "the native no-op")


def main() -> int:
    try:
        for one in (built, client):
            one(lambda what: print(f"bench: {what}", file=sys.stderr))
    except CannotMeasure as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m bench.exchange`: how long the sidecar alone takes at a fixed rate, on one core of its own.

The whole path (`make bench`) needs more than two cores at this rate: Envoy alone takes one. Here a native client
stands in Envoy's place: streams begin at random moments, on two connections, each sends headers, waits, sends the
body and waits. What a stream waits from the moment it is due is what the sidecar adds, transport and scheduling
included. h2load can't be it: it sends the requests of ten milliseconds at once, and then times its own bursts.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import native_server
from bench.bodies import body
from bench.compare import RATE
from bench.errors import CannotMeasure
from bench.micro import body_message, headers_message
from bench.processes import Process, accepts, cpu_s, running
from bench.variants import KINDS, NATIVE, OURS_FAST, config_text

CONNECTIONS = 2
WARM_UP = 2000
BODY = "2 KB"
BOUND_MS = 5.0
VARIANTS = (NATIVE, OURS_FAST)


@contextlib.contextmanager
def server(name: str, folder: Path) -> Iterator[tuple[Process, Path]]:
    """On the first core, and its socket."""
    folder.mkdir()
    socket = folder / "extproc.sock"
    if name == NATIVE:
        program = native_server.built(lambda _: None)
        if program is None:
            raise CannotMeasure("there is no compiler for the native no-op")
        command = [str(program), f"unix:{socket}"]
    else:
        config = folder / "extproc.yaml"
        config.write_text(config_text(8000, None, KINDS[name]))
        command = [sys.executable, "-m", "extproc", "serve", "--config", str(config), "--state-dir", str(folder)]
    pinned = ["taskset", "--cpu-list", "0", *command]
    with running(name, pinned, folder / "log", lambda: accepts(socket)) as process:
        yield process, socket


def messages(folder: Path) -> tuple[Path, Path]:
    """Files of the two messages of one request, as Envoy sends them."""
    data = body(BODY).data
    files = folder / "headers", folder / "body"
    files[0].write_bytes(headers_message(len(data)))
    files[1].write_bytes(body_message(data))
    return files


def put(socket: Path, files: tuple[Path, Path], *, rate: float, requests: int) -> list[float]:
    """Milliseconds of each stream, ascending; the client is on the second core. CannotMeasure where one fails."""
    program = native_server.client(lambda _: None)
    if program is None:
        raise CannotMeasure("there is no compiler for the native client")
    told = [str(socket), *map(str, files), f"{rate:.3f}", str(requests), str(CONNECTIONS)]
    pinned = ["taskset", "--cpu-list", "1", str(program), *told]
    done = subprocess.run(pinned, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotMeasure(f"the client: {done.stderr.strip()[-200:]}")
    return sorted(int(line) / 1000 for line in done.stdout.split())


def measured(name: str, rate: float, seconds: float, folder: Path) -> dict[str, Any]:
    files = messages(folder)
    with server(name, folder / name.replace(", ", "-").replace(" ", "-")) as (process, socket):
        put(socket, files, rate=rate, requests=WARM_UP)
        requests, before = round(rate * seconds), cpu_s(process.pid)
        took = put(socket, files, rate=rate, requests=requests)
        return {
            "variant": name,
            "requests": requests,
            "p50_ms": took[len(took) // 2],
            "p99_ms": took[len(took) * 99 // 100],
            "max_ms": took[-1],
            "core_share": (cpu_s(process.pid) - before) / seconds,
        }


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.exchange", description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=RATE, help=f"requests a second ({RATE:,.0f})")
    parser.add_argument("--seconds", type=float, default=10.0, help="(10)")
    parser.add_argument("--json", action="store_true", help="for machines")
    arguments = parser.parse_args(argv)
    if (os.cpu_count() or 1) < 2:
        print("bench: it takes two cores", file=sys.stderr)
        return 1
    try:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            found = []
            for name in VARIANTS:
                print(f"{name}: {arguments.rate:,.0f} requests/s for {arguments.seconds:g} s", file=sys.stderr)
                found.append(measured(name, arguments.rate, arguments.seconds, Path(folder)))
    except CannotMeasure as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        print(json.dumps(found, indent=1))
        return 0
    for each in found:
        print(
            f"{each['variant']:<16} p50 {each['p50_ms']:.2f} ms, p99 {each['p99_ms']:.2f} ms, "
            f"max {each['max_ms']:.1f} ms, {100 * each['core_share']:.0f} % of a core"
        )
    p99 = found[-1]["p99_ms"]
    print(f"p99 that {OURS_FAST} adds: {p99:.2f} ms, <= {BOUND_MS:g} ms {'met' if p99 <= BOUND_MS else 'MISSED'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

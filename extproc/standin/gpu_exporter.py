"""`python -m extproc.standin.gpu_exporter`: pages in the GPU exporter's format, from a scenario file.

A machine without GPUs has no such page, and the path from an exporter to a weight is to be the same there:

    gpus:
      - labels: {Hostname: node-a, gpu: "0"}
        points:                      # linear between them, constant outside
          - {at_s: 0, memory_used: 4000, memory_free: 20000, utilisation: 30}
          - {at_s: 60, memory_used: 22000, memory_free: 2000, utilisation: 95, sm_active: 0.9}
    frozen_after_s: 120              # optional: from then on the page does not change

Memory in MiB, utilisation in percent, `sm_active` (optional) a fraction, as the exporter has them. Time counts from
the start of the process. The file is read again when it changes; a bad one leaves the last good one in place.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import yaml
from aiohttp import web
from msgspec import Struct

from extproc.errors import CannotStart

WATTS = 100
"""What each GPU is said to draw: energy is the counter by which a page of a living exporter moves."""


class At(Struct, frozen=True, forbid_unknown_fields=True):
    at_s: float
    memory_used: float
    memory_free: float
    utilisation: float
    sm_active: float | None = None


class Gpu(Struct, frozen=True, forbid_unknown_fields=True):
    labels: dict[str, str]
    points: list[At]


class Scenario(Struct, frozen=True, forbid_unknown_fields=True):
    gpus: list[Gpu]
    frozen_after_s: float = math.inf


GAUGES = (
    ("DCGM_FI_DEV_GPU_UTIL", "utilisation"),
    ("DCGM_FI_DEV_FB_FREE", "memory_free"),
    ("DCGM_FI_DEV_FB_USED", "memory_used"),
    ("DCGM_FI_PROF_SM_ACTIVE", "sm_active"),
)
ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"


def scenario(text: bytes) -> Scenario:
    """A scenario out of its file; ValueError says what is wrong with it."""
    try:
        found = msgspec.convert(yaml.safe_load(text), Scenario)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise ValueError(" ".join(str(error).split())) from None
    for gpu in found.gpus:
        times = [point.at_s for point in gpu.points]
        if not times or times != sorted(set(times)):
            raise ValueError(f"{gpu.labels}: points need a rising at_s, and there is at least one")
    return found


def page(scenario: Scenario, elapsed_s: float) -> bytes:
    """The page at a time since the start."""
    at_s = min(elapsed_s, scenario.frozen_after_s)
    lines = [line for name, field in GAUGES for line in _gauge(scenario, name, field, at_s)]
    return "".join([*lines, *_energy(scenario, at_s)]).encode()


def _gauge(scenario: Scenario, name: str, field: str, at_s: float) -> Iterator[str]:
    yield f"# HELP {name} From a scenario.\n# TYPE {name} gauge\n"
    for gpu in scenario.gpus:
        value = value_at(gpu.points, field, at_s)
        if value is not None:
            yield f"{name}{_labels(gpu.labels)} {value:g}\n"


def _energy(scenario: Scenario, at_s: float) -> Iterator[str]:
    yield f"# HELP {ENERGY} In mJ.\n# TYPE {ENERGY} counter\n"
    for gpu in scenario.gpus:
        yield f"{ENERGY}{_labels(gpu.labels)} {at_s * WATTS * 1000:.0f}\n"


def value_at(points: Sequence[At], field: str, at_s: float) -> float | None:
    """Linear between the points around `at_s`; None where the nearer one before it does not name the field."""
    after = next((number for number, point in enumerate(points) if point.at_s > at_s), len(points))
    before = points[max(0, after - 1)]
    then = points[min(after, len(points) - 1)]
    low, high = getattr(before, field), getattr(then, field)
    if low is None or high is None or then.at_s == before.at_s:
        return None if low is None else float(low)
    share = min(max((at_s - before.at_s) / (then.at_s - before.at_s), 0.0), 1.0)
    return float(low + (high - low) * share)


def _labels(given: Mapping[str, str]) -> str:
    gpu = given.get("gpu", "0")
    own = {"gpu": gpu, "UUID": f"GPU-{given.get('Hostname', '')}-{gpu}", "device": f"nvidia{gpu}"}
    text = ",".join(f'{name}="{_escaped(value)}"' for name, value in {**own, **given}.items())
    return f"{{{text}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


class Exporter:
    """Serves the file as it is at the moment of each request."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = _identity(path)
        self._scenario = scenario(path.read_bytes())
        self._started_s: float | None = None

    async def handle(self, request: web.Request) -> web.Response:
        self._look()
        body = page(self._scenario, self.elapsed_s())
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4"})

    def elapsed_s(self) -> float:
        now_s = asyncio.get_running_loop().time()
        if self._started_s is None:
            self._started_s = now_s
        return now_s - self._started_s

    def _look(self) -> None:
        try:
            seen = _identity(self._path)
            if seen == self._seen:
                return
            self._seen = seen
            self._scenario = scenario(self._path.read_bytes())
        except (OSError, ValueError) as problem:
            print(f"{self._path}: {problem}; the last good scenario stays", file=sys.stderr, flush=True)


def _identity(path: Path) -> tuple[int, int, int]:
    stat = path.stat()
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


async def start(host: str, port: int, path: Path) -> web.AppRunner:
    """Listen on /metrics; `runner.cleanup()` ends it. ValueError and OSError say why not."""
    exporter = Exporter(path)
    exporter.elapsed_s()
    app = web.Application()
    app.router.add_get("/metrics", exporter.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except BaseException:
        await runner.cleanup()
        raise
    return runner


async def serve(host: str, port: int, path: Path) -> None:
    """Listen, say where, and end cleanly when asked to."""
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    try:
        runner = await start(host, port, path)
    except (OSError, ValueError) as error:
        raise CannotStart(f"{path} on {host}:{port}: {error}") from error
    print(f"GPU exporter on http://{host}:{runner.addresses[0][1]}/metrics", flush=True)
    await ended.wait()
    await runner.cleanup()


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m extproc.standin.gpu_exporter")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one (default: %(default)s)")
    parser.add_argument("--scenario", type=Path, required=True, metavar="FILE", help="what the GPUs do, as YAML")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; the exit code."""
    options = parse(argv)
    try:
        asyncio.run(serve(options.host, options.port, options.scenario))
    except CannotStart as problem:
        print(f"gpu_exporter: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

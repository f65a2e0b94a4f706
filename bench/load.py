"""Load by h2load: an exact number of requests over a number of HTTP/1.1 connections.

An exact number, because CPU time is divided by it. The rejected alternative, wrk, runs for a time and leaves
a request per connection unfinished: with 16 connections and bodies of 1 MB that is a tenth of a round.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.bodies import PATH
from bench.errors import CannotMeasure

PROGRAM = "h2load"
PACKAGE = "nghttp2-client"

_FINISHED = re.compile(r"finished in ([0-9.]+)(us|ms|s|m)\b")
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}


@dataclass(frozen=True, slots=True)
class Load:
    """What one run of h2load saw. `errors` are requests without a 2xx answer."""

    requests: int
    errors: int
    seconds: float
    p50_ms: float
    p99_ms: float

    @property
    def rps(self) -> float:
        return self.requests / self.seconds


def program() -> str:
    """Where h2load is; CannotMeasure where it is not."""
    found = shutil.which(PROGRAM)
    if found is None:
        raise CannotMeasure(f"{PROGRAM} is not installed: apt-get install {PACKAGE}")
    return found


def put(
    port: int, body: Path, *, requests: int, connections: int, scratch: Path, rate: float | None = None
) -> Load:
    """POST `body` that often to Envoy on `port`; at least one request per connection.

    `rate`: so many a second over all connections; None = each as soon as the one before is answered.
    """
    requests = max(requests, connections)
    log = scratch / "requests.log"
    log.unlink(missing_ok=True)
    command = [program(), "--h1", "-n", str(requests), "-c", str(connections), "-t", "1", "-d", str(body)]
    command += [] if rate is None else [f"--rps={rate / connections:.4f}"]
    command += ["-H", "content-type: application/json", "--log-file", str(log), f"http://127.0.0.1:{port}{PATH}"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise CannotMeasure(f"{PROGRAM} ended with {run.returncode}: {run.stderr.strip() or run.stdout[-200:]}")
    return read(run.stdout, log.read_text(), requests)


def read(output: str, log: str, requests: int) -> Load:
    """The figures in h2load's output and in its log, which has a line per request: start, status, µs."""
    finished = _FINISHED.search(output)
    if finished is None:
        raise CannotMeasure(f"{PROGRAM} printed no result")
    lines = [line.split() for line in log.splitlines()]
    good = sorted(int(micros) for _, status, micros in lines if status.startswith("2"))
    return Load(
        requests=requests,
        errors=requests - len(good),
        seconds=float(finished[1]) * _UNITS[finished[2]],
        p50_ms=quantile(good, 0.5) / 1000,
        p99_ms=quantile(good, 0.99) / 1000,
    )


def quantile(ascending: Sequence[float], q: float) -> float:
    """Nearest rank; NaN of nothing."""
    if not ascending:
        return float("nan")
    return ascending[min(len(ascending) - 1, int(q * len(ascending)))]

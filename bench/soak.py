"""Many requests through one sidecar: memory of each process stays where it is after the first tenth, and streams
and open files come back to what they were."""

from __future__ import annotations

import contextlib
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import load
from bench.bodies import body
from bench.envoys import engine
from bench.errors import CannotMeasure
from bench.processes import rss_mb
from bench.tree import named, open_files
from bench.variants import OURS_FAST, OURS_TWO, Variant, check, variant

VARIANTS = (OURS_FAST, OURS_TWO)
"""Between them, every kind of process."""

SAMPLES = 20
CONNECTIONS = 16
BODY = "2 KB"
WARM_UP_REQUESTS = 500
SETTLE_S = 7.0
"""Until the sidecar has looked at its engines once, and keeps the connection."""

FLAT = 0.03
"""Growth from 10 % to 100 % of the requests that still counts as flat."""

BACK_S = 15.0
"""How long streams and open files may take to come back after the last request."""


@dataclass(frozen=True, slots=True)
class Grown:
    """One process: RSS in MB after each twentieth of the requests, open files before them and after."""

    rss_mb: tuple[float, ...]
    files: tuple[int, int]

    def at(self, percent: int) -> float:
        return self.rss_mb[percent * SAMPLES // 100 - 1]

    @property
    def growth(self) -> float:
        """0.03 = 3 % more at the end than after the first tenth."""
        return self.at(100) / self.at(10) - 1

    @property
    def good(self) -> bool:
        return self.growth <= FLAT and self.files[1] <= self.files[0]


@dataclass(frozen=True, slots=True)
class Soak:
    """`streams`: open ones before and after."""

    variant: str
    requests: int
    errors: int
    processes: Mapping[str, Grown]
    streams: tuple[int, int]

    @property
    def good(self) -> bool:
        flat = all(each.good for each in self.processes.values())
        return flat and not self.errors and self.streams[1] <= self.streams[0]

    def slope_mb(self, process: str) -> float:
        """MB per 100,000 requests, fitted to what comes after the first tenth."""
        values = self.processes[process].rss_mb[SAMPLES // 10 - 1 :]
        return slope(values) * SAMPLES / self.requests * 100_000


def slope(values: Sequence[float]) -> float:
    """Least squares, per step."""
    middle, mean = (len(values) - 1) / 2, sum(values) / len(values)
    spread = sum((i - middle) ** 2 for i in range(len(values)))
    return sum((i - middle) * (value - mean) for i, value in enumerate(values)) / spread


def soaks(requests: int, folder: Path, config: Path | None, say: Callable[[str], None]) -> Iterator[Soak]:
    """So many requests through one sidecar after the other, each fresh, 2 KB on 16 connections."""
    chat = body(BODY)
    file = folder / "body"
    file.write_bytes(chat.data)
    with engine(folder / "engine") as port:
        for at, name in enumerate(VARIANTS):
            with variant(name, folder / f"s{at}", port, config) as one:
                check(one, chat)
                yield _run(one, requests, file, folder, say)


def _run(one: Variant, requests: int, file: Path, folder: Path, say: Callable[[str], None]) -> Soak:
    assert one.sidecar is not None
    # First, so that connections which are kept are among the open files at the start.
    load.put(one.port, file, requests=WARM_UP_REQUESTS, connections=CONNECTIONS, scratch=folder)
    time.sleep(SETTLE_S)
    processes = named(one.sidecar.pid)
    files, streams = {name: open_files(pid) for name, pid in processes.items()}, _settled(one, 0)
    slice_, errors = max(CONNECTIONS, requests // SAMPLES), 0
    samples: dict[str, list[float]] = {name: [] for name in processes}
    for number in range(1, SAMPLES + 1):
        seen = load.put(one.port, file, requests=slice_, connections=CONNECTIONS, scratch=folder)
        errors += seen.errors
        for name, pid in processes.items():
            samples[name].append(_rss_mb(name, pid))
        told = ", ".join(f"{name} {each[-1]:.1f} MB" for name, each in samples.items())
        say(f"soak: {number * slice_:,} of {SAMPLES * slice_:,} requests, {seen.rps:,.0f}/s; {told}")
    after = _settled(one, streams)
    grown = {
        name: Grown(tuple(samples[name]), (files[name], _files_back(pid, files[name])))
        for name, pid in processes.items()
    }
    return Soak(one.name, SAMPLES * slice_, errors + one.failed_open(), grown, (streams, after))


def _rss_mb(name: str, pid: int) -> float:
    try:
        return rss_mb(pid)
    except OSError:
        raise CannotMeasure(f"the process '{name}' ended under load") from None


def _settled(one: Variant, wanted: int) -> int:
    """Open streams, once they are no more than `wanted`, or when the time is over."""
    return _least(lambda: open_streams(_page(one.metrics)), wanted)


def _files_back(pid: int, wanted: int) -> int:
    return _least(lambda: open_files(pid), wanted)


def _least(count: Callable[[], int], wanted: int) -> int:
    deadline = time.monotonic() + BACK_S
    while (now := count()) > wanted and time.monotonic() < deadline:
        time.sleep(0.1)
    return now


def _page(url: str) -> str:
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as page:
        return str(page.read().decode())
    raise CannotMeasure(f"{url} does not answer")


def open_streams(page: str) -> int:
    """Of a metrics page."""
    for line in page.splitlines():
        if line.startswith("llm_streams_open "):
            return int(float(line.split()[1]))
    raise CannotMeasure("the metrics say nothing of open streams")

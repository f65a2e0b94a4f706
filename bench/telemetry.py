"""`python -m bench.telemetry`: what it costs to read a thousand engines, in CPU seconds per interval.

The scraper runs as the program runs it, against pages over loopback HTTP that a process of its own serves, one
loopback address per engine. The pages are vLLM's, with counters that grow. Fetching alone, and each step on a
page that is already here, are measured beside it and say where the time goes. A second table says what a tick makes
of it: weights, resources, and what Envoy is sent.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import uvloop

from bench import tick
from bench.errors import CannotMeasure
from bench.processes import ROOT, free_port, running
from bench.report import table
from extproc.edge.scrape import Pages
from extproc.engines import exposition, vllm
from extproc.engines.reading import Source
from extproc.loops.telemetry import INTERVAL_S, SLOTS, Scraper, Target

PAGE = ROOT / "tests" / "engines" / "pages" / "vllm_metrics.txt"
AIM_S = 1.5
"""CPU of one core per interval of 5 s."""


def page(number: int) -> bytes:
    """The page of the n-th look: each cumulative value higher than at the look before, and help texts."""
    lines = []
    for line in PAGE.read_text().splitlines():
        name, _, value = line.rpartition(" ")
        if line.startswith("# TYPE"):
            lines.append(f"# HELP {line.split()[2]} One sentence on what this family of series counts.")
        grows = line.startswith("vllm:") and not line.startswith(("vllm:num_requests", "vllm:kv_", "vllm:cache_"))
        lines.append(f"{name} {float(value) + number}" if grows else line)
    return ("\n".join(lines) + "\n").encode()


def hosts(count: int) -> list[str]:
    return [f"127.1.{number // 250}.{number % 250 + 1}" for number in range(count)]


class _Engine(asyncio.Protocol):
    """Answers every request on a connection with the next page."""

    answers: tuple[bytes, ...] = ()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._number = transport, 0

    def data_received(self, data: bytes) -> None:
        for _ in range(data.count(b"\r\n\r\n")):
            self._transport.write(self.answers[min(self._number, len(self.answers) - 1)])  # type: ignore[attr-defined]
            self._number += 1


async def serve(port: int, endpoints: int, looks: int) -> None:
    """All engines of the benchmark, until ended."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: %d\r\n\r\n"
    bodies = [page(number) for number in range(looks)]
    _Engine.answers = tuple(head % len(body) + body for body in bodies)
    server = await asyncio.get_running_loop().create_server(_Engine, hosts(endpoints), port, backlog=256)
    await server.serve_forever()


def reading_us(repeat: int = 300) -> dict[str, float]:
    """CPU µs of each step on one page in memory, the second look at it."""
    before, now = page(0), page(1)
    kept, first = exposition.cut(now, vllm.WANTED), exposition.cut(before, vllm.WANTED)
    if not isinstance(kept, bytes) or not isinstance(first, bytes):
        raise CannotMeasure("the page is no page of metrics")
    points = exposition.parse(kept, vllm.WANTED)
    _, counters = vllm.sample(None, exposition.parse(first, vllm.WANTED), now=0.0)
    return {
        "filter": _us(lambda: exposition.cut(now, vllm.WANTED), repeat),
        "parse": _us(lambda: exposition.parse(kept, vllm.WANTED), repeat),
        "map": _us(lambda: vllm.sample(counters, points, now=5.0), repeat),
    }


def _us(step: Callable[[], object], repeat: int) -> float:
    begun = time.process_time()
    for _ in range(repeat):
        step()
    return (time.process_time() - begun) / repeat * 1e6


async def fetching_s(urls: Sequence[str]) -> float:
    """CPU seconds to fetch every page once, over connections that are open already."""
    pages, slots = Pages(), asyncio.Semaphore(SLOTS)

    async def one(url: str) -> None:
        async with slots:
            if not isinstance(found := await pages.fetch(url), bytes):
                raise CannotMeasure(f"{url}: {found}")

    try:
        await asyncio.gather(*(one(url) for url in urls))
        begun = time.process_time()
        await asyncio.gather(*(one(url) for url in urls))
        return time.process_time() - begun
    finally:
        await pages.close()


async def scraping_s(urls: Sequence[str], ticks: int, interval_s: float) -> float:
    """CPU seconds per interval of the scraper with all endpoints, after a first one that opens connections."""
    pages = Pages()
    scraper = Scraper(fetch=lambda target: pages.fetch(target.url), interval_s=interval_s)
    scraper.set_targets(Target(url, Source.VLLM, url) for url in urls)
    task = asyncio.create_task(scraper.run())
    try:
        await asyncio.sleep(interval_s * 1.2)
        looks, begun = _looks(scraper), time.process_time()
        await asyncio.sleep(interval_s * ticks)
        spent_s, looks = time.process_time() - begun, _looks(scraper) - looks
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await pages.close()
    failed = sum(sum(look.failures.values()) for look in scraper.looks().values())
    if failed or not looks:
        raise CannotMeasure(f"{failed} looks failed, {looks} were measured")
    return spent_s / looks * len(urls)


def _looks(scraper: Scraper) -> int:
    return sum(look.looks for look in scraper.looks().values())


def measure(endpoints: int, ticks: int, interval_s: float, folder: Path) -> str:
    """The table."""
    port = free_port()
    urls = [f"http://{host}:{port}/metrics" for host in hosts(endpoints)]
    command = [sys.executable, "-m", "bench.telemetry", "--serve", str(port)]
    command += ["--endpoints", str(endpoints), "--ticks", str(ticks)]

    def ready() -> bool:
        with contextlib.suppress(CannotMeasure):
            return asyncio.run(fetching_s(urls[-1:])) >= 0
        return False

    with running("the engines", command, folder / "engines.log", ready):
        fetch_s = asyncio.run(fetching_s(urls))
        total_s = asyncio.run(scraping_s(urls, ticks, interval_s))
    steps_s = {"fetch": fetch_s} | {step: us * endpoints / 1e6 for step, us in reading_us().items()}
    return _report(endpoints, interval_s, steps_s, total_s)


def _report(endpoints: int, interval_s: float, steps_s: dict[str, float], total_s: float) -> str:
    rest_s = total_s - sum(steps_s.values())
    rows = {**steps_s, "the loop, and what they cost each other": rest_s, "all of it": total_s}
    aim = f"aim <= {AIM_S:g}: {'met' if total_s <= AIM_S else 'MISSED'}"
    cells = [
        (step, aim if step == "all of it" else "", f"{spent_s:.3f}", f"{spent_s / endpoints * 1e3:.3f}")
        for step, spent_s in rows.items()
    ]
    title = f"{endpoints:,} endpoints, pages of {len(page(0)):,} bytes, one look each per {interval_s:g} s"
    return f"{title}\n{table(('step', '', 'CPU s per interval', 'ms per page'), cells)}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.telemetry", description=__doc__)
    parser.add_argument("--endpoints", type=int, default=1000, metavar="N")
    parser.add_argument("--ticks", type=int, default=4, metavar="N", help="intervals that are measured")
    parser.add_argument("--interval", type=float, default=INTERVAL_S, metavar="S")
    parser.add_argument("--serve", type=int, metavar="PORT", help=argparse.SUPPRESS)
    return parser


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(argv)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    if options.serve is not None:
        uvloop.run(serve(options.serve, options.endpoints, options.ticks + 8))
        return 0
    try:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            print(measure(options.endpoints, options.ticks, options.interval, Path(folder)))
            print(f"\n{tick.measure(options.endpoints, options.ticks, Path(folder))}")
    except CannotMeasure as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Ours without the whole sidecar around it: the product's scraper, access log, windows and scoring in one process.

`python -m bench.weights.standin FILE`. Weights reach Envoy by a file it watches, everything else is the product's.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

import msgspec
import uvloop
from msgspec import Struct

from bench.weights.envoy import assignment, tcp
from bench.weights.scenario import Ours
from extproc.edge.access_log import AccessLogServicer, handler
from extproc.edge.grpc_server import bind, server
from extproc.edge.scrape import Pages
from extproc.engines.failures import Failure
from extproc.engines.reading import OWN, Source
from extproc.loops.latency import Latency
from extproc.loops.tasks import monotonic, spawn
from extproc.loops.telemetry import Scraper, Target
from extproc.scoring.values import EndpointInput, PoolWeights, Reading, ScoringRules
from extproc.scoring.weigh import weigh

BODY_BYTES = 1 << 24


class Plan(Struct, frozen=True):
    """`socket`: where Envoy logs to; `assignment`: the file it reads weights from."""

    cluster: str
    engines: tuple[int, ...]
    ours: Ours
    socket: str
    assignment: str


class Uncounted:
    """The access log's own counters, which no figure needs."""

    def entries_running(self, count: int) -> None: ...
    def entries_unreadable(self, count: int) -> None: ...
    def message_unreadable(self) -> None: ...
    def samples_failed(self) -> None: ...
    def log_opened(self) -> None: ...
    def log_ended(self) -> None: ...


def key(port: int) -> str:
    return f"127.0.0.1:{port}"


class Weigher:
    """One tick: what is known becomes weights, changed ones are published."""

    def __init__(self, plan: Plan, scraper: Scraper, latency: Latency) -> None:
        self._plan = plan
        self._scraper = scraper
        self._latency = latency
        self._rules = ScoringRules(interval_s=plan.ours.interval_s)
        self._shares: dict[str, int] = {}

    def tick(self, *, now: float) -> PoolWeights:
        found = weigh([self._input(port, now) for port in self._plan.engines], self._shares, self._rules, now=now)
        self._shares = found.shares
        if found.changed:
            publish(self._plan, {each.key: each.weight for each in found.weights})
        return found

    def _input(self, port: int, now: float) -> EndpointInput:
        look, seen = self._scraper.look(key(port)), self._latency.reading(key(port), now=now)
        sample = look.samples.get(OWN)
        memory = sample.memory if sample else None
        return EndpointInput(
            key=key(port),
            healthy=True,
            memory=None if sample is None or memory is None else Reading(memory, sample.at),
            p99_s=None if seen.p99_s is None or seen.last_at is None else Reading(seen.p99_s, seen.last_at),
            max_acceptable_p99_s=self._plan.ours.max_acceptable_p99_s,
        )


def publish(plan: Plan, weights: dict[str, int]) -> None:
    """By rename, so that Envoy never reads half a file."""
    kind = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
    shares = [(tcp(port), weights.get(key(port), 1)) for port in plan.engines]
    tree = {"resources": [{"@type": kind, **assignment(plan.cluster, shares)}]}
    file = Path(plan.assignment)
    written = file.with_suffix(".new")
    written.write_text(json.dumps(tree))
    written.rename(file)


async def run(plan: Plan) -> None:
    """Until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    latency, pages = Latency(window_s=plan.ours.window_s), Pages()

    async def fetch(target: Target) -> bytes | Failure:
        return await pages.fetch(target.url)

    scraper = Scraper(fetch=fetch, interval_s=plan.ours.interval_s)
    scraper.set_targets(Target(key(p), Source.DCGM, f"http://{key(p)}/metrics") for p in plan.engines)
    latency.place({key(p): key(p) for p in plan.engines}, {plan.cluster: plan.cluster}, now=monotonic())
    grpc_server = server(BODY_BYTES)
    record = AccessLogServicer(record=lambda each: latency.record(each, now=monotonic()), recorder=Uncounted())
    grpc_server.add_generic_rpc_handlers((handler(record),))
    bind(grpc_server, f"unix:{plan.socket}")
    await grpc_server.start()
    weigher = Weigher(plan, scraper, latency)
    async with asyncio.TaskGroup() as group:
        loops = [spawn(group, scraper.run(), name="scrape"), spawn(group, _ticks(weigher, plan), name="weigh")]
        await stop.wait()
        for each in loops:
            each.cancel()
    await grpc_server.stop(0)
    await pages.close()


async def _ticks(weigher: Weigher, plan: Plan) -> None:
    while True:
        await asyncio.sleep(plan.ours.interval_s)
        weigher.tick(now=monotonic())


if __name__ == "__main__":
    uvloop.run(run(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Plan)))

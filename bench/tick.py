"""What one tick over a thousand endpoints costs: from readings to what one Envoy is sent, in CPU milliseconds.

The parts are the program's own, put together as it does, with an engine's page in memory instead of a socket. All
of it runs on the event loop that serves requests too, so this is how long a request may wait for a tick.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TypeVar

from bench.errors import CannotMeasure
from bench.report import table
from extproc.codec import discovery
from extproc.codec.xds import encode
from extproc.deployment import engines, plan
from extproc.edge.xds_files import XdsFiles
from extproc.loops.latency import Latency
from extproc.loops.readings import Readings
from extproc.loops.reconcile import PoolReport, Reconciler, View, World, scoring_rules, standing
from extproc.loops.telemetry import Look
from extproc.model.telemetry import AccessSample, EngineSample
from extproc.model.topology import Endpoint
from extproc.model.xds import Kind, Resources, Subscribe
from extproc.resources.check import check
from extproc.resources.subscription import Subscriptions
from extproc.resources.template import load_template
from extproc.resources.world import fixed, resources
from extproc.scoring.weigh import weigh
from extproc.settings import load

AIM_MS = 50.0
INTERVAL_S = 5.0
REQUESTS = 20
"""Of each endpoint in each interval."""

POOL = "chat"
R = TypeVar("R")


class Fleet:
    """Endpoints of one pool, each with a page, and a window full of requests."""

    def __init__(self, endpoints: int, folder: Path) -> None:
        self.settings = load(f"pools: [{{name: {POOL}, engine: vllm, endpoints_file: none}}]")
        (self.spec,) = self.settings.pool_specs()
        self.endpoints = tuple(Endpoint(f"10.1.{at // 250}.{at % 250 + 1}", 8000) for at in range(endpoints))
        self.now = 1000.0
        self._random = random.Random(1)
        self._memory = {each.key: self._random.random() for each in self.endpoints}
        self._times = [self._random.lognormvariate(-1, 0.5) for _ in range(REQUESTS)]
        self._latency = Latency()
        self._latency.place({each.key: each.key for each in self.endpoints}, {POOL: POOL}, now=self.now)
        self.readings = Readings(
            self.settings.telemetry, look=self._look, healthy=lambda _: True, latency=self._latency
        )
        every = engines(self.settings, {}, lb_policy=self.settings.weights.lb_policy)
        parts = fixed(load_template(), plan(self.settings, folder, every))
        self.world = World(self.settings, (View("*", "*", None, parts),))
        self._files = XdsFiles(folder / "xds")
        self.encoded = encode(resources(parts, (), generation=1))
        self._stream = Subscriptions()
        self._stream.receive(Subscribe(Kind.EDS, frozenset({POOL})))
        for _ in range(12):
            self.pass_time()

    def pass_time(self, *, changed: bool = False) -> None:
        """An interval later. `changed`: every engine tells of another memory."""
        self.now += INTERVAL_S
        if changed:
            self._memory = {key: self._random.random() for key in self._memory}
        for each in self.endpoints:
            self._latency.record((_finished(each, total_s) for total_s in self._times), now=self.now - 0.1)

    def _look(self, key: str) -> Look:
        at = self.now - 1
        sample = EngineSample(at=at, memory=self._memory[key.partition("/")[2]])
        return Look(samples={"": sample}, taken_at=at, page_changed_at=at)

    def publish(self, built: Resources) -> None:
        self.encoded = encode(built, self.encoded)
        self.write(built)
        self.push()

    def write(self, built: Resources) -> None:
        self._files.write(built)

    def push(self) -> None:
        """What one Envoy that follows is sent, which it accepts at once."""
        self._stream.offer(self.encoded)
        while (push := self._stream.next_push()) is not None:
            discovery.response(push)
            self._stream.receive(Subscribe(push.kind, frozenset({POOL}), push.nonce, push.version))


def _finished(endpoint: Endpoint, total_s: float) -> AccessSample:
    return AccessSample(
        upstream=endpoint.key,
        cluster=POOL,
        route=POOL,
        status=200,
        flags=(),
        first_byte_s=total_s / 10,
        total_s=total_s,
        tier="normal",
        scenario="general",
        request_class="normal",
        tenant="anonymous",
        params="set@1",
    )


class Steps:
    """The steps of a tick one by one, each timed."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._shares: dict[str, int] = {}
        self.ms: dict[str, list[float]] = {}

    def run(self, *, published: bool) -> None:
        fleet = self._fleet
        settings, spec = fleet.settings, fleet.spec
        inputs = self._timed("readings", lambda: fleet.readings(spec, fleet.endpoints, now=fleet.now))
        rules = scoring_rules(settings)
        weights = self._timed("weigh", lambda: weigh(inputs, self._shares, rules, now=fleet.now))
        self._shares = weights.shares
        report = PoolReport(spec.name, spec.engine.value, spec.role.value, fleet.endpoints, weights)
        policy = settings.weights.lb_policy
        seen = self._timed("place", lambda: engines(settings, {POOL: standing(report)}, lb_policy=policy))
        if published:
            parts = fleet.world.views[0].parts
            number = fleet.encoded.generation + 1
            built = self._timed("build", lambda: resources(parts, seen, generation=number))
            self._timed("check", lambda: check(built))
            fleet.encoded = self._timed("encode", lambda: encode(built, fleet.encoded))
            self._timed("files", lambda: fleet.write(built))
            self._timed("push to one Envoy", fleet.push)

    def _timed(self, step: str, call: Callable[[], R]) -> R:
        begun = time.process_time()
        found = call()
        self.ms.setdefault(step, []).append((time.process_time() - begun) * 1e3)
        return found


def steps_ms(endpoints: int, ticks: int, folder: Path, *, changed: bool) -> dict[str, float]:
    """CPU ms of each step, the median of `ticks`."""
    fleet = Fleet(endpoints, folder)
    steps = Steps(fleet)
    for _ in range(ticks):
        fleet.pass_time(changed=changed)
        steps.run(published=changed)
    return {step: median(spent) for step, spent in steps.ms.items()}


def whole_ms(endpoints: int, ticks: int, folder: Path, *, changed: bool) -> list[float]:
    """CPU ms of each whole tick, its share of garbage collection included."""
    fleet = Fleet(endpoints, folder)
    reconciler = Reconciler(fleet.world, inputs=fleet.readings, publish=lambda built: fleet.publish(built[0]))

    def tick() -> int:
        return reconciler.tick({POOL: fleet.endpoints}, now=fleet.now).generation

    generation, spent = tick(), []
    gc.collect()
    for _ in range(ticks):
        fleet.pass_time(changed=changed)
        begun, before = time.process_time(), generation
        generation = tick()
        spent.append((time.process_time() - begun) * 1e3)
        if (generation > before) != changed:
            raise CannotMeasure(f"a tick {'pushed nothing' if changed else 'pushed'}")
    return spent


def measure(endpoints: int, ticks: int, folder: Path) -> str:
    """The table: a tick in which nothing changed, and one in which weights did."""
    cases = (False, True)
    steps = [steps_ms(endpoints, ticks, folder / f"steps-{case}", changed=case) for case in cases]
    wholes = [whole_ms(endpoints, ticks, folder / f"whole-{case}", changed=case) for case in cases]
    rows = [(step, "", *(_ms(each.get(step)) for each in steps)) for step in steps[-1]]
    slowest = max(map(max, wholes))
    aim = f"aim <= {AIM_MS:g}: {'met' if slowest <= AIM_MS else 'MISSED'}"
    rows += [("all of it", "", *(_ms(median(each)) for each in wholes))]
    rows += [("the slowest of them", aim, *(_ms(max(each)) for each in wholes))]
    title = f"{endpoints:,} endpoints, {REQUESTS} requests each per {INTERVAL_S:g} s: one tick, CPU ms"
    return f"{title}\n{table(('step', '', 'nothing changed', 'weights changed'), rows)}"


def _ms(spent: float | None) -> str:
    return "-" if spent is None else f"{spent:.1f}"

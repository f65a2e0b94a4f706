"""One run: engines, the sidecar, Envoy and the load, each a process of its own, all fresh."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.envoys import Node, envoy_command, live, written
from bench.errors import CannotMeasure
from bench.processes import ROOT, admin, answers, cpu_s, free_port, running
from bench.weights import client, engine
from bench.weights.client import Seen
from bench.weights.driver import fragment, sidecar
from bench.weights.envoy import CLUSTERS, OURS, Variant, bootstrap
from bench.weights.scenario import Case, Scenario
from bench.weights.watch import Watch, Weights, pushes, weights
from bench.weights.work import Work, work

LEAD_S = 12.0
"""From the first process to the first request: what starting takes, and a first scrape or two."""


class Run(Struct, frozen=True):
    """`cpu`: used share of the whole machine, and of one core by each process. `degraded`: port by variant."""

    case: str
    seed: int
    half_s: float
    work: Work
    seen: dict[str, Seen]
    degraded: dict[str, int]
    weights: list[Weights]
    pushes: int
    cpu: dict[str, float]


def run(scenario: Scenario, case: Case, *, seed: int, names: Sequence[str], folder: Path) -> Run:
    """`names`: the variants that share this run. `folder` must not exist and be short, for socket paths."""
    folder.mkdir()
    asked = work(scenario, case, seed)
    ports = iter(_ports(len(names) * (scenario.endpoints + 1)))
    variants = [Variant(name, next(ports), tuple(next(ports) for _ in range(scenario.endpoints))) for name in names]
    start_at = time.monotonic() + LEAD_S
    with contextlib.ExitStack() as stack:
        pids = {"engines": stack.enter_context(_engines(scenario, case, variants, start_at, folder)).pid}
        for each in variants:
            if each.name == OURS:
                pids["ours"] = stack.enter_context(sidecar(scenario.ours, each.engines, folder)).pid
        config = bootstrap(variants, str(folder / "a"), fragment(folder))
        pids["Envoy"] = stack.enter_context(_envoy(config, folder)).pid
        watch = Watch(folder / "a", CLUSTERS[OURS], start_at)
        before = {name: cpu_s(pid) for name, pid in pids.items()}
        _await_endpoints(folder / "a", variants, start_at)
        watch.start()
        seen, cpu = _load(variants, asked, start_at, folder)
        watch.stop()
        passed_s = time.monotonic() - start_at + LEAD_S
        cpu |= {name: (cpu_s(pid) - before[name]) / passed_s for name, pid in pids.items()}
        count = pushes(folder / "a", CLUSTERS[OURS])
    degraded = {} if case.degraded is None else {each.name: each.engines[case.degraded] for each in variants}
    by_variant = {each.variant: each for each in seen}
    return Run(case.name, seed, scenario.half_s, asked, by_variant, degraded, watch.seen, count, cpu)


def _ports(count: int) -> list[int]:
    found: set[int] = set()
    while len(found) < count:
        found.add(free_port())
    return sorted(found)


def _engines(scenario: Scenario, case: Case, variants: Sequence[Variant], start_at: float, folder: Path):  # type: ignore[no-untyped-def]
    half = start_at + scenario.half_s
    servers = [
        engine.Server(port, half if index == case.degraded else None)
        for each in variants
        for index, port in enumerate(each.engines)
    ]
    plan = engine.Plan(tuple(servers), scenario.slots, scenario.memory, scenario.degraded)
    file = folder / "engines.json"
    file.write_bytes(msgspec.json.encode(plan))
    command = [sys.executable, "-m", "bench.weights.engine", str(file)]
    return running("the engines", command, folder / "engines.log", lambda: answers(servers[-1].port))


def _envoy(config: Node, folder: Path):  # type: ignore[no-untyped-def]
    command = envoy_command(written(folder, config), "--concurrency", "1")
    return running("Envoy", command, folder / "envoy.log", live(folder / "a"))


def _await_endpoints(pipe: Path, variants: Sequence[Variant], start_at: float) -> None:
    """Until Envoy knows the endpoints of every variant; those of ours may have to be told first."""
    while True:
        page = admin(pipe, "/clusters")
        missing = [each.name for each in variants if not weights(page, CLUSTERS[each.name])]
        if time.monotonic() > start_at:
            raise CannotMeasure(
                f"not ready within {LEAD_S:g} s; no endpoints: {', '.join(missing) or 'none missing'}"
            )
        if not missing:
            return
        time.sleep(0.1)


def _load(
    variants: Sequence[Variant], asked: Work, start_at: float, folder: Path
) -> tuple[list[Seen], dict[str, float]]:
    """What each variant's requests came to; CPU of the client and of the machine meanwhile."""
    targets = tuple(client.Target(each.name, each.port) for each in variants)
    plan, result = folder / "client.json", folder / "client.result"
    plan.write_bytes(msgspec.json.encode(client.Plan(targets, asked, start_at)))
    command = [sys.executable, "-m", "bench.weights.client", str(plan), str(result)]
    child, before, used = subprocess.Popen(command, cwd=ROOT), machine(), 0.0
    try:
        while child.poll() is None:
            with contextlib.suppress(OSError):
                used = cpu_s(child.pid)
            time.sleep(0.2)
    finally:
        if child.poll() is None:
            child.terminate()
            child.wait()
    if child.returncode != 0:
        raise CannotMeasure(f"the client ended with {child.returncode}")
    (busy, all_of_it), (was_busy, was) = machine(), before
    cpu = {"machine": (busy - was_busy) / (all_of_it - was), "client": used / (asked.at_s[-1] + LEAD_S)}
    return msgspec.msgpack.decode(result.read_bytes(), type=list[Seen]), cpu


def machine() -> tuple[float, float]:
    """Busy and all ticks of all cores since the machine started."""
    ticks = [float(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return sum(ticks) - idle, sum(ticks)

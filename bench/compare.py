"""The variants side by side: short rounds in turn, so that a busy minute of the machine hits all of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench import load
from bench.bodies import Body, body
from bench.envoys import engine
from bench.errors import CannotMeasure
from bench.processes import cpu_s
from bench.tree import all_rss_mb, each_cpu_s, pids
from bench.variants import NAMES, NONE, OURS_FAST, Variant, check, variant

MIN_REQUESTS = 24
WARM_UP_REQUESTS = {"2 KB": 400, "100 KB": 120, "1 MB": 32}

RATE, PACED_BODY, PACED_CONNECTIONS, PACED_SECONDS = 2778.0, "2 KB", 16, 3.0
"""A day of 240 million requests, spread evenly."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured. `seconds` is what a round of one case takes."""

    rounds: int
    seconds: float
    bodies: tuple[str, ...] = ("2 KB", "100 KB", "1 MB")
    connections: tuple[int, ...] = (1, 16)
    variants: tuple[str, ...] = NAMES
    paced: tuple[str, ...] = (NONE, OURS_FAST)
    """These also at RATE, which leaves room: a queue that is always full says little of how long one waits."""


@dataclass(frozen=True, slots=True)
class Case:
    """One line of the table. `rate`: requests a second; None = as many as there is time for."""

    variant: str
    body: str
    connections: int
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """What one case did in one round. `sidecar_us` and `envoy_us` are CPU per request; CPU and RSS of the sidecar
    are those of all its processes, `busiest_us` that of the one with the most."""

    load: load.Load
    errors: int
    sidecar_us: float | None
    busiest_us: float | None
    envoy_us: float
    rss_mb: float | None


@dataclass(slots=True)
class Measured:
    rounds: dict[Case, list[Round]] = field(default_factory=dict)

    @property
    def errors(self) -> int:
        return sum(each.errors for rounds in self.rounds.values() for each in rounds)


def compare(plan: Plan, folder: Path, config: Path | None, say: Say) -> Measured:
    """All rounds of all cases. `folder` must exist and be short enough for socket paths."""
    bodies = [body(label) for label in plan.bodies]
    files = _written(bodies, folder)
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(engine(folder / "engine"))
        started = [
            stack.enter_context(variant(name, folder / f"v{at}", port, config))
            for at, name in enumerate(plan.variants)
        ]
        for each in bodies:
            for one in started:
                check(one, each)
        say("warming up")
        counts = _counts(plan, started, files, folder)
        measured = Measured({case: [] for case in counts})
        for number in range(1, plan.rounds + 1):
            say(f"round {number} of {plan.rounds}")
            # Turn by turn within a size, so that what is compared is measured within seconds.
            for case, requests in counts.items():
                one = next(each for each in started if each.name == case.variant)
                measured.rounds[case].append(_round(one, case, requests, files[case.body], folder))
    return measured


def _written(bodies: Sequence[Body], folder: Path) -> dict[str, Path]:
    files = {each.label: folder / f"body-{len(each.data)}" for each in bodies}
    for each in bodies:
        files[each.label].write_bytes(each.data)
    return files


def _counts(plan: Plan, variants: list[Variant], files: dict[str, Path], folder: Path) -> dict[Case, int]:
    """Requests per round of each case, in the order of the rounds, so that each takes about as long."""
    counts = {}
    for label in plan.bodies:
        for connections in plan.connections:
            for one in variants:
                warm = WARM_UP_REQUESTS[label]
                seen = load.put(one.port, files[label], requests=warm, connections=connections, scratch=folder)
                counts[Case(one.name, label, connections)] = max(MIN_REQUESTS, round(seen.rps * plan.seconds))
        if label == PACED_BODY:
            for one in (each for each in variants if each.name in plan.paced):
                case = Case(one.name, label, PACED_CONNECTIONS, RATE)
                counts[case] = round(RATE * max(plan.seconds, PACED_SECONDS))
    return counts


def _round(one: Variant, case: Case, requests: int, file: Path, folder: Path) -> Round:
    before = _counters(one)
    seen = load.put(one.port, file, requests=requests, connections=case.connections, scratch=folder, rate=case.rate)
    envoy, failed_open, *each = (b - a for a, b in zip(before, _counters(one), strict=True))
    return Round(
        load=seen,
        errors=seen.errors + int(failed_open),
        sidecar_us=sum(each) / seen.requests * 1e6 if one.sidecar else None,
        busiest_us=max(each) / seen.requests * 1e6 if one.sidecar else None,
        envoy_us=envoy / seen.requests * 1e6,
        rss_mb=all_rss_mb(one.sidecar.pid) if one.sidecar else None,
    )


def _counters(one: Variant) -> tuple[float, ...]:
    """CPU seconds of Envoy, what failed open, CPU seconds of each process of the sidecar."""
    if one.sidecar is not None and pids(one.sidecar.pid) != one.sidecar_pids:
        raise CannotMeasure(f"{one.name}: a process of the sidecar ended and was started again")
    return cpu_s(one.envoy.pid), one.failed_open(), *each_cpu_s(one.sidecar_pids)

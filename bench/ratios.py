"""What is read off the table: figures of one variant against another's, round by round, and their targets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from statistics import median

from bench.compare import PACED_CONNECTIONS, RATE, Measured, Round
from bench.variants import NATIVE, NONE, NOOP_FAST, NOOP_GRPC, OURS_FAST, OURS_GRPC, OURS_INTENT, OURS_TWO

ROOM_CORES = 6
"""Two workers, two threads of Envoy, the engine and the load: with fewer cores a second worker has no room."""

Figure = Callable[[Round, Round], float | None]
"""Of a round of the one variant and the same round of the other; None where there is no such figure."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A target: at most `bound`, or at least; `aim` is what would be better still."""

    bound: float
    aim: float | None = None
    least: bool = False

    def met(self, value: float) -> bool:
        return value >= self.bound if self.least else value <= self.bound


@dataclass(frozen=True, slots=True)
class Question:
    """`relative`: a ratio, which is alike on other machines; others have a unit."""

    what: str
    of: str
    against: str
    figure: Figure
    limits: Mapping[str, Limit] = field(default_factory=dict)
    connections: tuple[int, ...] = (1, 16)
    relative: bool = True
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The median of the rounds, and their spread."""

    what: str
    body: str
    connections: int
    median: float
    least: float
    most: float
    limit: Limit | None
    relative: bool


def _cpu(one: Round, other: Round) -> float | None:
    return one.sidecar_us / other.sidecar_us if one.sidecar_us is not None and other.sidecar_us else None


def _p50(one: Round, other: Round) -> float | None:
    return one.load.p50_ms / other.load.p50_ms if other.load.p50_ms else None


def _throughput(one: Round, other: Round) -> float | None:
    return one.load.rps / other.load.rps


def _by_the_busiest(one: Round, other: Round) -> float | None:
    """Where each process has a core of its own, the busiest one bounds them all."""
    return other.busiest_us / one.busiest_us if one.busiest_us and other.busiest_us else None


def _of_a_core(one: Round, _: Round) -> float | None:
    return 1e6 / one.sidecar_us if one.sidecar_us else None


def _added_p99(one: Round, other: Round) -> float | None:
    return one.load.p99_ms - other.load.p99_ms


def _cpu_ratio(of: str, against: str, limits: Mapping[str, Limit] | None = None) -> Question:
    return Question(f"CPU: {of} / {against}", of, against, _cpu, limits or {})


QUESTIONS = (
    _cpu_ratio(OURS_FAST, NATIVE, {"2 KB": Limit(2.6, aim=2.2)}),
    Question(f"p50: {OURS_FAST} / {NATIVE}", OURS_FAST, NATIVE, _p50, {"2 KB": Limit(1.6)}, (1,)),
    _cpu_ratio(OURS_INTENT, NATIVE, {"2 KB": Limit(4.0)}),
    _cpu_ratio(OURS_GRPC, NOOP_GRPC, {"2 KB": Limit(1.3), "1 MB": Limit(2.0)}),
    _cpu_ratio(OURS_FAST, NOOP_FAST),
    _cpu_ratio(OURS_FAST, NOOP_GRPC),
    _cpu_ratio(OURS_TWO, OURS_FAST),
    Question(
        f"requests/s with a core for each process: {OURS_TWO} / {OURS_FAST}",
        OURS_TWO,
        OURS_FAST,
        _by_the_busiest,
        {"2 KB": Limit(1.7, least=True)},
        connections=(16,),
    ),
    Question(
        f"requests/s one core could do: {OURS_FAST}",
        OURS_FAST,
        OURS_FAST,
        _of_a_core,
        {"2 KB": Limit(2778, least=True)},
        connections=(16,),
        relative=False,
    ),
    Question(
        f"p99 added, ms, flat out: {OURS_FAST} - {NONE}",
        OURS_FAST,
        NONE,
        _added_p99,
        connections=(16,),
        relative=False,
    ),
    Question(
        f"p99 added, ms, at {RATE:,.0f}/s: {OURS_FAST} - {NONE}",
        OURS_FAST,
        NONE,
        _added_p99,
        {"2 KB": Limit(5)},
        connections=(PACED_CONNECTIONS,),
        relative=False,
        rate=RATE,
    ),
)

TWO_WORKERS = Question(
    f"requests/s: {OURS_TWO} / {OURS_FAST}",
    OURS_TWO,
    OURS_FAST,
    _throughput,
    {"2 KB": Limit(1.7, least=True)},
    connections=(16,),
    relative=False,
)
"""Depends on what the machine leaves to a second worker."""


def cores() -> int:
    return len(os.sched_getaffinity(0))


def answers(measured: Measured) -> list[Answer]:
    """To every question whose two variants were measured."""
    questions = (*QUESTIONS, TWO_WORKERS) if cores() >= ROOM_CORES else QUESTIONS
    return [found for each in questions for found in _answers(each, measured)]


def _answers(question: Question, measured: Measured) -> Iterator[Answer]:
    for case, rounds in measured.rounds.items():
        others = measured.rounds.get(replace(case, variant=question.against))
        asked = case.variant == question.of and case.rate == question.rate
        if not asked or others is None or case.connections not in question.connections:
            continue
        pairs = zip(rounds, others, strict=True)
        values = [value for one, other in pairs if (value := question.figure(one, other)) is not None]
        if values:
            yield Answer(
                question.what,
                case.body,
                case.connections,
                median(values),
                min(values),
                max(values),
                question.limits.get(case.body),
                question.relative,
            )

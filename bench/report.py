"""Tables for people, and the same figures as a tree for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from bench.compare import Case, Measured, Round
from bench.micro import STEPS, Steps
from bench.ratios import ROOM_CORES, Answer, answers, cores
from bench.soak import FLAT, Soak
from bench.variants import OURS_TWO

COLUMNS = (
    "variant",
    "body",
    "conn.",
    "requests",
    "sidecar CPU µs/req",
    "Envoy CPU µs/req",
    "p50 ms",
    "p99 ms",
    "req/s",
    "RSS MB",
    "errors",
)


@dataclass(frozen=True, slots=True)
class Results:
    measured: Measured
    steps: Sequence[Steps] = ()
    soaks: Sequence[Soak] = ()

    @property
    def good(self) -> bool:
        """Whether nothing failed, memory stayed flat, and nothing was left open."""
        return not self.measured.errors and all(each.good for each in self.soaks)


def text(results: Results) -> str:
    parts = [_cases(results.measured), _answers(answers(results.measured))]
    if results.steps:
        parts.append(_steps(results.steps))
    if results.soaks:
        parts.append(_soaks(results.soaks))
    return "\n\n".join(parts)


def tree(results: Results) -> dict[str, Any]:
    """Everything printed, and each round behind it."""
    return {
        "cases": [{**asdict(case), "rounds": _plain(rounds)} for case, rounds in results.measured.rounds.items()],
        "ratios": [_answer_tree(each) for each in answers(results.measured)],
        "steps_us": {steps.body: steps.us for steps in results.steps},
        "soaks": [_soak_tree(each) for each in results.soaks],
        "good": results.good,
    }


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Aligned text: the first two columns to the left, figures to the right."""
    lines = [columns, *rows]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    rule = ["-" * width for width in widths]
    return "\n".join(
        "  ".join(
            cell.ljust(w) if at < 2 else cell.rjust(w)
            for at, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in [columns, rule, *lines[1:]]
    )


def _cases(measured: Measured) -> str:
    rounds = max((len(each) for each in measured.rounds.values()), default=0)
    title = f"Medians of {rounds} rounds; requests and errors are sums. Sidecar: all of its processes, RSS added up"
    return f"{title}\n{table(COLUMNS, [_row(case, each) for case, each in measured.rounds.items()])}"


def _row(case: Case, rounds: Sequence[Round]) -> list[str]:
    return [
        case.variant,
        case.body if case.rate is None else f"{case.body}, {case.rate:,.0f}/s",
        str(case.connections),
        f"{sum(each.load.requests for each in rounds):,}",
        _middle(rounds, lambda each: each.sidecar_us, "{:.0f}"),
        _middle(rounds, lambda each: each.envoy_us, "{:.0f}"),
        _middle(rounds, lambda each: each.load.p50_ms, "{:.2f}"),
        _middle(rounds, lambda each: each.load.p99_ms, "{:.2f}"),
        _middle(rounds, lambda each: each.load.rps, "{:,.0f}"),
        _middle(rounds, lambda each: each.rss_mb, "{:.1f}"),
        str(sum(each.errors for each in rounds)),
    ]


def _middle(rounds: Sequence[Round], figure: Callable[[Round], float | None], form: str) -> str:
    values = [value for each in rounds if (value := figure(each)) is not None]
    return form.format(median(values)) if values else "–"


def _answers(found: Sequence[Answer]) -> str:
    rows = [
        [
            each.what,
            each.body,
            str(each.connections),
            _number(each.median, each),
            f"{_number(each.least, each)} – {_number(each.most, each)}",
            _target(each),
        ]
        for each in found
    ]
    columns = ("figure", "body", "conn.", "median", "over rounds", "target")
    told = f"Round by round, of what ran within the same seconds\n{table(columns, rows)}"
    two = any(OURS_TWO in each.what for each in found)
    return f"{told}\n{NO_ROOM.format(cores())}" if two and cores() < ROOM_CORES else told


NO_ROOM = (
    "Requests/s of two workers are not compared: on {} cores load, engine and Envoy leave them no room; "
    "the CPU per request of the busiest process says what they could do."
)


def _number(value: float, of: Answer) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def _target(found: Answer) -> str:
    limit = found.limit
    if limit is None:
        return "–"
    sign, aim = ">=" if limit.least else "<=", "" if limit.aim is None else f", aim {limit.aim:g}"
    return f"{sign} {limit.bound:,g} {'met' if limit.met(found.median) else 'MISSED'}{aim}"


def _steps(found: Sequence[Steps]) -> str:
    rows = [[step, "", *(f"{steps.us[step]:,.1f}" for steps in found)] for step in STEPS]
    columns = ("step", "", *(steps.body for steps in found))
    return f"One request in process, CPU µs, no Envoy, no socket\n{table(columns, rows)}"


def _soaks(found: Sequence[Soak]) -> str:
    columns = (
        "variant",
        "process",
        *("MB at 10 %", "at 50 %", "at 100 %", "growth", "MB per 100,000"),
        *("files before", "after", "verdict"),
    )
    rows = [_grown(soak, name) for soak in found for name in soak.processes]
    told = [
        f"{soak.variant}: {soak.requests:,} requests, {soak.errors} errors, open streams "
        f"{soak.streams[0]} before and {soak.streams[1]} after: {'good' if soak.good else 'NOT good'}"
        for soak in found
    ]
    return "\n".join([f"Soak: RSS flat within {FLAT:.0%}, open files back", table(columns, rows), *told])


def _grown(soak: Soak, name: str) -> list[str]:
    process = soak.processes[name]
    return [
        soak.variant,
        name,
        *(f"{process.at(percent):.1f}" for percent in (10, 50, 100)),
        f"{process.growth:+.1%}",
        f"{soak.slope_mb(name):+.2f}",
        *map(str, process.files),
        "good" if process.good else "NOT good",
    ]


def _soak_tree(soak: Soak) -> dict[str, Any]:
    return {
        "variant": soak.variant,
        "requests": soak.requests,
        "errors": soak.errors,
        "open_streams": list(soak.streams),
        "processes": {
            name: {
                "rss_mb": list(each.rss_mb),
                "growth": each.growth,
                "slope_mb_per_100k": soak.slope_mb(name),
                "open_files": list(each.files),
            }
            for name, each in soak.processes.items()
        },
        "good": soak.good,
    }


def _answer_tree(found: Answer) -> dict[str, Any]:
    return {
        "figure": found.what,
        "body": found.body,
        "connections": found.connections,
        "median": found.median,
        "min": found.least,
        "max": found.most,
    }


def _plain(rounds: Sequence[Round]) -> list[dict[str, Any]]:
    return [
        {
            "requests": each.load.requests,
            "errors": each.errors,
            "seconds": each.load.seconds,
            "rps": each.load.rps,
            "p50_ms": each.load.p50_ms,
            "p99_ms": each.load.p99_ms,
            "sidecar_us": each.sidecar_us,
            "busiest_us": each.busiest_us,
            "envoy_us": each.envoy_us,
            "rss_mb": each.rss_mb,
        }
        for each in rounds
    ]

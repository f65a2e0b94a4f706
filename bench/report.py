"""Tables for people, and the same figures as a tree for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.compare import Case, Measured, Ratio, Round, ratios
from bench.micro import STEPS, Steps
from bench.soak import FLAT_MB, Soak

TARGETS = {"2 KB": 1.3, "1 MB": 2.0}
"""Sidecar CPU of ours over the no-op's, at most."""

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
    soak: Soak | None = None

    @property
    def good(self) -> bool:
        """Whether nothing failed and memory stayed flat."""
        return not self.measured.errors and (self.soak is None or (self.soak.flat and not self.soak.errors))


def text(results: Results) -> str:
    parts = [_cases(results.measured), _ratios(ratios(results.measured))]
    if results.steps:
        parts.append(_steps(results.steps))
    if results.soak:
        parts.append(_soak(results.soak))
    return "\n\n".join(parts)


def tree(results: Results) -> dict[str, Any]:
    """Everything printed, and each round behind it."""
    return {
        "cases": [
            {"variant": case.variant, "body": case.body, "connections": case.connections, "rounds": _plain(rounds)}
            for case, rounds in results.measured.rounds.items()
        ],
        "ratios": [
            {"body": r.body, "connections": r.connections, "median": r.median, "min": r.least, "max": r.most}
            for r in ratios(results.measured)
        ],
        "steps_us": {steps.body: steps.us for steps in results.steps},
        "soak": _soak_tree(results.soak),
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
    title = f"Medians of {rounds} rounds; requests and errors are sums"
    return f"{title}\n{table(COLUMNS, [_row(case, each) for case, each in measured.rounds.items()])}"


def _row(case: Case, rounds: Sequence[Round]) -> list[str]:
    return [
        case.variant,
        case.body,
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


def _ratios(found: Sequence[Ratio]) -> str:
    rows = [
        [r.body, str(r.connections), f"{r.median:.2f}", f"{r.least:.2f} – {r.most:.2f}", _target(r)] for r in found
    ]
    columns = ("body", "conn.", "ours / no-op", "over rounds", "target")
    return f"Sidecar CPU, ours over the no-op\n{table(columns, rows)}"


def _target(ratio: Ratio) -> str:
    most = TARGETS.get(ratio.body)
    if most is None:
        return "–"
    return f"<= {most:g} {'met' if ratio.median <= most else 'MISSED'}"


def _steps(found: Sequence[Steps]) -> str:
    rows = [[step, "", *(f"{steps.us[step]:,.1f}" for steps in found)] for step in STEPS]
    columns = ("step", "", *(steps.body for steps in found))
    return f"One request in process, CPU µs, no Envoy, no gRPC\n{table(columns, rows)}"


def _soak(soak: Soak) -> str:
    verdict = "flat" if soak.flat else f"NOT flat (more than {FLAT_MB:g} MB)"
    return (
        f"Soak, {soak.requests:,} requests, {soak.errors} errors: RSS {soak.at(10):.1f} MB at 10 %, "
        f"{soak.at(50):.1f} MB at 50 %, {soak.at(100):.1f} MB at 100 %; "
        f"{soak.slope_mb:+.2f} MB per 100,000 requests: {verdict}"
    )


def _soak_tree(soak: Soak | None) -> dict[str, Any] | None:
    if soak is None:
        return None
    return {
        "requests": soak.requests,
        "errors": soak.errors,
        "rss_mb": list(soak.rss_mb),
        "growth_mb": soak.growth_mb,
        "slope_mb_per_100k": soak.slope_mb,
        "flat": soak.flat,
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
            "envoy_us": each.envoy_us,
            "rss_mb": each.rss_mb,
        }
        for each in rounds
    ]

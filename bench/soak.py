"""Many requests through one sidecar: its memory has to stay where it is after the first tenth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import load
from bench.bodies import body
from bench.processes import rss_mb
from bench.variants import OURS, Variant, check, engine, variant

SAMPLES = 20
CONNECTIONS = 16
BODY = "2 KB"
FLAT_MB = 5.0
"""Growth from 10 % to 100 % of the requests that still counts as flat."""


@dataclass(frozen=True, slots=True)
class Soak:
    """RSS in MB after each twentieth of the requests."""

    requests: int
    errors: int
    rss_mb: tuple[float, ...]

    def at(self, percent: int) -> float:
        return self.rss_mb[percent * SAMPLES // 100 - 1]

    @property
    def growth_mb(self) -> float:
        return self.at(100) - self.at(10)

    @property
    def flat(self) -> bool:
        return self.growth_mb < FLAT_MB

    @property
    def slope_mb(self) -> float:
        """MB per 100,000 requests, fitted to what comes after the first tenth."""
        first = SAMPLES // 10 - 1
        return slope(self.rss_mb[first:]) * SAMPLES / self.requests * 100_000


def slope(values: Sequence[float]) -> float:
    """Least squares, per step."""
    middle, mean = (len(values) - 1) / 2, sum(values) / len(values)
    spread = sum((i - middle) ** 2 for i in range(len(values)))
    return sum((i - middle) * (value - mean) for i, value in enumerate(values)) / spread


def soak(requests: int, folder: Path, config: Path | None, say: Callable[[str], None]) -> Soak:
    """A fresh sidecar and Envoy under 2 KB requests on 16 connections."""
    chat = body(BODY)
    file = folder / "body"
    file.write_bytes(chat.data)
    with engine(folder / "engine") as port, variant(OURS, folder / "ours", port, config) as one:
        check(one, chat)
        return _run(one, requests, file, folder, say)


def _run(one: Variant, requests: int, file: Path, folder: Path, say: Callable[[str], None]) -> Soak:
    assert one.sidecar is not None
    slice_, errors, samples = max(CONNECTIONS, requests // SAMPLES), 0, []
    for number in range(1, SAMPLES + 1):
        seen = load.put(one.port, file, requests=slice_, connections=CONNECTIONS, scratch=folder)
        errors += seen.errors
        samples.append(rss_mb(one.sidecar.pid))
        say(f"soak: {number * slice_:,} of {SAMPLES * slice_:,} requests, {samples[-1]:.1f} MB, {seen.rps:.0f}/s")
    return Soak(SAMPLES * slice_, errors + one.failed_open(), tuple(samples))

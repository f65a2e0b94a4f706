"""Streams of answers: when they ended, how long they took, how long the request was. Seeded."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from extproc.model.lengths import length_bucket

Array = NDArray[np.float64]

RATE = 50.0
"""Answers a second."""

STALL_S = 2.0

SHORT, LONG = "512", "8192"


@dataclass(frozen=True)
class Stream:
    """In order of time; `length` is the bucket of each."""

    at_s: Array
    latency_s: Array
    length: NDArray[np.str_]


Make = Callable[[np.random.Generator, float, bool], Stream]
"""(random numbers, seconds, whether it is the day after the baseline's: what differs then is no drift)."""


def _arrivals(random: np.random.Generator, seconds: float, rate: float = RATE) -> Array:
    gaps = random.exponential(1 / rate, int(seconds * rate * 1.2) + 50)
    at = np.cumsum(gaps)
    return at[at < seconds]


def _mixed(random: np.random.Generator, at: Array, short: Array, long_share: float | Array) -> Stream:
    """Long requests take four times as long."""
    long = random.uniform(size=len(at)) < long_share
    return Stream(at, np.where(long, short * 4, short), np.where(long, LONG, SHORT))


def lognormal(random: np.random.Generator, seconds: float, later: bool) -> Stream:
    at = _arrivals(random, seconds)
    return _mixed(random, at, random.lognormal(-2.4, 0.5, len(at)), 0.2)


def bimodal(random: np.random.Generator, seconds: float, later: bool) -> Stream:
    """Half of the answers come out of a cache."""
    at = _arrivals(random, seconds)
    hit = random.uniform(size=len(at)) < 0.5
    values = np.where(hit, random.lognormal(-4, 0.3, len(at)), random.lognormal(-2.2, 0.3, len(at)))
    return _mixed(random, at, values, 0.2)


def heavy_tail(random: np.random.Generator, seconds: float, later: bool) -> Stream:
    at = _arrivals(random, seconds)
    return _mixed(random, at, 0.05 * (1 + random.pareto(2.2, len(at))), 0.2)


def diurnal(random: np.random.Generator, seconds: float, later: bool) -> Stream:
    """The rate rises and falls fourfold in two hours; answers take as long as ever."""
    at = _arrivals(random, seconds, RATE * 1.6)
    kept = random.uniform(size=len(at)) < 0.625 + 0.375 * np.sin(2 * np.pi * at / 7200)
    at = at[kept]
    return _mixed(random, at, random.lognormal(-2.4, 0.5, len(at)), 0.2)


def length_mix(random: np.random.Generator, seconds: float, later: bool) -> Stream:
    """On the second day more and more requests are long."""
    at = _arrivals(random, seconds)
    share = 0.2 + 0.5 * at / seconds if later else 0.2
    return _mixed(random, at, random.lognormal(-2.4, 0.5, len(at)), share)


@cache
def _trace(path: Path) -> tuple[Array, Array, Array]:
    with path.open() as file:
        rows = [
            (float(row["arrival_s"]), int(row["prompt_tokens"]), int(row["output_tokens"]))
            for row in csv.DictReader(file)
        ]
    at, prompt, output = (np.array(column, float) for column in zip(*rows, strict=True))
    return at, prompt, output


def trace(path: Path) -> Make:
    """Real arrivals and lengths, as fast as RATE; latencies by an engine's prefill and decode times, with noise."""

    def make(random: np.random.Generator, seconds: float, later: bool) -> Stream:
        at, prompt, output = _trace(path)
        faster = RATE * (at[-1] - at[0]) / len(at)
        begin = int(random.integers(len(at)))
        at, prompt, output = (np.roll(each, -begin) for each in (np.diff(at, append=at[-1] + 0.1), prompt, output))
        repeats = int(np.ceil(seconds * RATE * 1.1 / len(at))) + 1
        gaps = np.tile(np.maximum(at, 0.0), repeats) / faster
        when = np.cumsum(gaps)
        kept = when < seconds
        tokens = np.tile(prompt, repeats)[kept]
        latency = 0.02 + tokens * 2e-5 + np.tile(output, repeats)[kept] * 5e-4
        latency *= random.lognormal(0, 0.25, len(latency))
        return Stream(when[kept], latency, np.array([length_bucket(int(size) * 4) for size in tokens]))

    return make


def changed(
    stream: Stream, random: np.random.Generator, at_s: float, *, factor: float = 1.0, tail_share: float = 0.0
) -> Stream:
    """From `at_s` on all take `factor` times as long, and `tail_share` of them STALL_S longer."""
    after = stream.at_s >= at_s
    latency = np.where(after, stream.latency_s * factor, stream.latency_s)
    slow = after & (random.uniform(size=len(latency)) < tail_share)
    return Stream(stream.at_s, np.where(slow, latency + STALL_S, latency), stream.length)

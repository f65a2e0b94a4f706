"""What is asked and how long it takes, drawn once per run and put on every variant alike."""

from __future__ import annotations

import csv
import gzip
import os
import random
from itertools import islice
from math import log
from pathlib import Path

from msgspec import Struct

from bench.errors import CannotMeasure
from bench.weights.scenario import Case, Scenario, Service

DATA = "EXTPROC_DATA"
BESIDE = Path(__file__).resolve().parents[3] / "shared" / "datasets"
POISSON = "poisson"


class Work(Struct, frozen=True):
    """`at_s`: arrivals in seconds from the start, ascending; `service_s`: how long a healthy slot works on each."""

    at_s: list[float]
    service_s: list[float]


def work(scenario: Scenario, case: Case, seed: int) -> Work:
    """All of one run. Equal arguments give equal work."""
    numbers = random.Random(seed)
    wanted = round(scenario.rate * scenario.seconds)
    if case.arrivals == POISSON:
        at_s = poisson(scenario.rate, scenario.seconds, numbers)
    else:
        at_s = rescaled(_trace(case.arrivals), wanted, scenario.seconds, numbers)
    return Work(at_s, services(scenario.service, len(at_s), numbers))


def poisson(rate: float, seconds: float, numbers: random.Random) -> list[float]:
    found, now = [], numbers.expovariate(rate)
    while now < seconds:
        found.append(now)
        now += numbers.expovariate(rate)
    return found


def rescaled(arrivals: list[float], wanted: int, seconds: float, numbers: random.Random) -> list[float]:
    """`wanted` arrivals in a row from anywhere in the trace, stretched to `seconds`: its bursts at our rate."""
    if len(arrivals) <= wanted:
        raise CannotMeasure(f"the trace has {len(arrivals)} arrivals, {wanted + 1} are needed")
    first = numbers.randrange(len(arrivals) - wanted)
    part = arrivals[first : first + wanted + 1]
    scale = seconds / (part[-1] - part[0])
    return [(at - part[0]) * scale for at in part[:-1]]


def services(service: Service, count: int, numbers: random.Random) -> list[float]:
    mu = log(service.mean_s) - service.sigma**2 / 2
    return [numbers.lognormvariate(mu, service.sigma) for _ in range(count)]


def _trace(name: str) -> list[float]:
    folder = Path(os.environ.get(DATA) or BESIDE) / "traces"
    file = folder / name
    try:
        with gzip.open(file, "rt") if file.suffix == ".gz" else file.open() as lines:
            return sorted(float(row["arrival_s"]) for row in islice(csv.DictReader(lines), 1_000_000))
    except (OSError, KeyError, ValueError) as error:
        raise CannotMeasure(f"{file} cannot be read ({error}); {DATA} names the folder of data") from None

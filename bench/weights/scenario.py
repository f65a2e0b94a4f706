"""The committed scenario: what is served, how it degrades, and what is asked of ours."""

from __future__ import annotations

from pathlib import Path

import msgspec
import yaml
from msgspec import Struct

from bench.errors import CannotMeasure

FILE = Path(__file__).with_name("scenario.yaml")


class Service(Struct, frozen=True, forbid_unknown_fields=True):
    """Lognormal service times."""

    mean_s: float
    sigma: float


class Memory(Struct, frozen=True, forbid_unknown_fields=True):
    """Of one engine. `weights_mib` is taken while it idles."""

    total_mib: float
    weights_mib: float
    per_request_mib: float


class Degraded(Struct, frozen=True, forbid_unknown_fields=True):
    """Factors on service times and on the memory's total."""

    slower: float
    memory: float


class Ours(Struct, frozen=True, forbid_unknown_fields=True):
    """What the product is configured with."""

    interval_s: float
    window_s: float
    max_acceptable_p99_s: float
    lb_policy: str


class Case(Struct, frozen=True, forbid_unknown_fields=True):
    """One block of the result. `arrivals`: `poisson`, or a file of traces with a column `arrival_s`."""

    name: str
    arrivals: str
    degraded: int | None
    seed: int


class Scenario(Struct, frozen=True, forbid_unknown_fields=True):
    seconds: float
    runs: int
    endpoints: int
    slots: int
    service: Service
    memory: Memory
    load: float
    degraded: Degraded
    ours: Ours
    cases: tuple[Case, ...]

    @property
    def rate(self) -> float:
        """Requests per second that are asked."""
        return self.load * self.endpoints * self.slots / self.service.mean_s

    @property
    def half_s(self) -> float:
        return self.seconds / 2


def load(file: Path = FILE) -> Scenario:
    """CannotMeasure where the file is none."""
    try:
        return msgspec.convert(yaml.safe_load(file.read_bytes()), Scenario)
    except (OSError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise CannotMeasure(f"{file}: {error}") from None

"""What latencies were like while all was well: by pool and tier of one parameter set, by length bucket."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from extproc.detectors.settings import FreezeConfig

MAX_SETS = 4
"""Baselines of the latest sets, each of which may be megabytes; older ones are of no use to anybody."""

RARE = 0.05
"""A length bucket with a smaller share of its set's requests is waited for by nobody."""

Strata = Mapping[str, tuple[float, ...]]
"""Sorted seconds by length bucket."""


class Baseline(Struct, frozen=True, kw_only=True):
    """Of one parameter set. `strata` by `pool tier`. `frozen_at` in seconds since the epoch."""

    parameter_set: str
    frozen_at: float
    strata: Mapping[str, Strata]

    def of(self, pool: str, tier: str) -> Strata | None:
        return self.strata.get(place(pool, tier))


class Baselines(Struct, frozen=True):
    """The newest last."""

    kept: tuple[Baseline, ...] = ()

    def of(self, parameter_set: str) -> Baseline | None:
        return next((each for each in self.kept if each.parameter_set == parameter_set), None)


def place(pool: str, tier: str) -> str:
    return f"{pool} {tier}"


def with_baseline(baselines: Baselines, added: Baseline) -> Baselines:
    """In place of an older one of the same set."""
    others = [each for each in baselines.kept if each.parameter_set != added.parameter_set]
    return replace(baselines, kept=(*others, added)[-MAX_SETS:])


def ripe(counts: Iterable[int], elapsed_s: float, config: FreezeConfig) -> bool:
    """Whether a set has shown itself long enough without a breach: `counts` are requests by pool, tier and length
    bucket since then. Buckets that are rare are not waited for."""
    every = list(counts)
    common = [count for count in every if count >= RARE * sum(every)]
    return bool(common) and elapsed_s >= config.after_s and min(common) >= config.samples

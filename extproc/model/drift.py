"""What the detectors say of latencies, by pool, parameter set and tier."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class DriftKey(Struct, frozen=True):
    """Latencies that are compared with each other; `parameter_set` as decisions carry it."""

    pool: str
    parameter_set: str
    tier: str


class Drift(StrEnum):
    UNKNOWN = "unknown"  # nothing to compare with, or too little: never fine
    FINE = "fine"
    WARNING = "warning"  # the shape moved, or a quick look thinks so; not confirmed
    DRIFT = "drift"  # the shape moved, and the tail by as much as matters


class Verdict(Struct, frozen=True, kw_only=True):
    """One look at one key. `d`: KS distance in [0, 1], of slower alone; `p`: corrected for strata, keys and looks.

    `p95_delta_s`: rise of the P95 in seconds. `tail_share`: of live values beyond the baseline's P99.
    `live`, `baseline`: samples compared. `baseline_set`: the parameter
    set the baseline is of, "" = there is none.
    """

    key: DriftKey
    state: Drift
    reason: str
    d: float | None = None
    p: float | None = None
    p95_delta_s: float | None = None
    live: int = 0
    baseline: int = 0
    tail_share: float | None = None
    baseline_set: str = ""

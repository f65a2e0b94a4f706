"""Whether a pool is to give cheaper answers: load with hysteresis, or the manual switch."""

from __future__ import annotations

from collections.abc import Iterable

from extproc.protect.settings import DegradeConfig


def load(utilisation: float | None, kv_usage: float | None, queue: float | None) -> float | None:
    """Of one endpoint: the highest of what is known, each a fraction of what it can bear; None = nothing is.

    `queue`: (running + waiting) / `limits.max_concurrency`; it may exceed 1.
    """
    known = [value for value in (utilisation, kv_usage, queue) if value is not None]
    return max(known, default=None)


def pool_load(loads: Iterable[float | None]) -> float | None:
    """Of a pool: the mean over its healthy endpoints; those that nothing is known of say nothing."""
    known = [value for value in loads if value is not None]
    return sum(known) / len(known) if known else None


def degraded(was: bool, load: float | None, config: DegradeConfig) -> bool:
    """Above `enter_load` it begins, below `leave_load` it ends, between the two it stays as it is.

    Without any reading it ends: cheap answers for hours because an exporter died are a fault of their own.
    """
    if config.mode != "auto":
        return config.mode == "on"
    if load is None:
        return False
    return load > config.enter_load or (was and load >= config.leave_load)

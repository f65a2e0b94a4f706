"""What the protection loop tells the decision side, and what it tells people. Values alone, ready to be JSON."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct


class PoolAccess(Struct, frozen=True):
    """A pool that does not take everybody. `probe_share` in [0, 1] of the requests go there, the rest do not.

    `classes` are exempt: they go there as ever. `reason` goes into the header, the audit and the metrics.
    """

    probe_share: float
    reason: str
    exempt: tuple[str, ...] = ()
    serves_anyway: bool = False
    """Without a light pool the requests stay: parameters are unsafe here, the pool itself is not shut."""
    alone: bool = False
    """No pool takes the rest, which goes there as well: only what is a probe is told apart."""


class ParameterAccess(Struct, frozen=True):
    """Dynamic parameters are off but for `probe_share` in [0, 1] of the requests."""

    probe_share: float
    reason: str


class Protection(Struct, frozen=True):
    """What differs from a quiet day. `pools`: those that don't take everybody. `degraded`: pools under load.

    `light`: pools that take fallback traffic at the moment, in the order of the config.
    `bytes_per_token`: of prompts, measured by model profile. `lengths`: of answers in tokens, learnt by scenario.
    """

    pools: Mapping[str, PoolAccess] = {}
    parameters: ParameterAccess | None = None
    degraded: tuple[str, ...] = ()
    light: tuple[str, ...] = ()
    retry_after_s: int = 0
    bytes_per_token: Mapping[str, float] = {}
    lengths: Mapping[str, int] = {}

    @property
    def calm(self) -> bool:
        """Nothing that a single request would feel."""
        return not (self.pools or self.parameters or self.degraded)


CALM = Protection()


class Kind(StrEnum):
    """What an incident is about."""

    BREAKER = "breaker"
    DRIFT = "drift"
    DEGRADE = "degrade"
    PARAMETERS = "parameters"
    PANIC = "panic"


class Severity(StrEnum):
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Incident(Struct, frozen=True, kw_only=True):
    """Something tripped, recovered or was changed. `at` in seconds since the epoch; never any text of a request.

    `subject`: what it happened to, e.g. `pool/big`. `active`: it still holds; an incident with the same kind and
    subject that is not active ends it. `evidence`: the figures that led to it.
    """

    at: float
    kind: Kind
    subject: str
    state: str
    reason: str
    severity: Severity
    active: bool
    evidence: Mapping[str, float | int | str | None] = {}

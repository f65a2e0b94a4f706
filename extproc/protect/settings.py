"""The protection loop's keys in the config: breakers, fallback, degrade, rollback, SLO, webhook."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from extproc.model.config import Config, Name, Tokens
from extproc.model.names import RequestClass

Seconds = Annotated[float, Field(gt=0, le=86_400)]
Milliseconds = Annotated[float, Field(gt=0, le=3_600_000)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]

MAX_PROBE_SHARE = 0.05


class TripRule(Config):
    """Trips when every limit it gives is exceeded."""

    error_rate: Annotated[float, Field(ge=0, lt=1)] | None = None
    p99_ms: Milliseconds | None = None

    @model_validator(mode="after")
    def _some_limit(self) -> TripRule:
        if self.error_rate is None and self.p99_ms is None:
            raise ValueError("allowed: at least one of error_rate, p99_ms")
        return self


class BreakerConfig(Config):
    """When it opens, how long, and what closes it again."""

    trip: list[TripRule]
    min_requests: Count
    open_s: Seconds
    max_open_s: Seconds
    jitter_share: Fraction
    probe_share: Annotated[float, Field(gt=0, le=MAX_PROBE_SHARE)]
    probe_concurrency: Count
    probes: Count
    bad_probes: Annotated[int, Field(ge=0, le=1_000_000)]
    half_open_s: Seconds


class Breakers(Config):
    window_s: Seconds
    panic: bool
    pool: BreakerConfig
    parameters: BreakerConfig
    fallback: BreakerConfig


class FallbackConfig(Config):
    """Requests to a pool that is shut go to a pool of role `light`."""

    classes: list[Annotated[RequestClass, Field(strict=False)]]
    prompt_tokens: Tokens
    concurrency: Count
    bytes_per_token: Annotated[float, Field(ge=0.25, le=32)]


class DegradeConfig(Config):
    """Cheaper answers while a pool is loaded. `mode`: auto, or the manual switch on or off."""

    mode: Annotated[str, Field(pattern="^(auto|on|off)$")]
    enter_load: Fraction
    leave_load: Fraction
    temperature: Annotated[float, Field(ge=0, le=2)]
    max_tokens: Tokens

    @model_validator(mode="after")
    def _hysteresis(self) -> DegradeConfig:
        if self.leave_load > self.enter_load:
            raise ValueError(f"allowed: leave_load at most enter_load ({self.enter_load:g})")
        return self


class SloConfig(Config):
    """What an endpoint promises over `weights.window_s`; `mean_ms` is reported, never acted on."""

    min_requests: Count
    p99_ms: Milliseconds
    error_rate: Fraction
    mean_ms: Milliseconds


class RollbackConfig(Config):
    """Broken for more than `breach_s` of the last `window_s` seconds, and on more than `affected` of them."""

    enabled: bool
    breach_s: Seconds
    window_s: Seconds
    affected: Fraction

    @model_validator(mode="after")
    def _fits(self) -> RollbackConfig:
        if self.breach_s > self.window_s:
            raise ValueError(f"allowed: breach_s at most window_s ({self.window_s:g})")
        return self


class SafeConfig(Config):
    """The static safe set: what differs from the shipped parameters while dynamic ones are off."""

    name: Name
    max_tokens: Tokens
    temperature: Annotated[float, Field(ge=0, le=2)]


class EventsConfig(Config):
    """`<state>/<path>`: one JSON line per incident."""

    path: str
    max_bytes: Annotated[int, Field(ge=4096)]
    keep: Annotated[int, Field(ge=1, le=1000)]
    shown: Count


class ProtectionConfig(Config):
    enabled: bool
    interval_s: Annotated[float, Field(ge=0.05, le=60)]
    breakers: Breakers
    fallback: FallbackConfig
    degrade: DegradeConfig
    slo: SloConfig
    rollback: RollbackConfig
    safe_set: SafeConfig
    events: EventsConfig

"""What is measured of an endpoint. None = not known, which is never the same as 0."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class EngineSample(Struct, frozen=True, kw_only=True):
    """One look at one endpoint; `at` in monotonic seconds.

    `memory`, `kv_usage`, `gpu_utilisation`, `sm_utilisation`, `prefix_hit_rate`, `fragmentation`: fractions in
    [0, 1]. `running`, `waiting`: requests. `p99_s`, `p999_s`, `ttft_p99_s`: seconds, as the engine tells them.
    `rates`: what cumulative counters grew by per second since the sample before, by name.
    """

    at: float
    memory: float | None = None
    kv_usage: float | None = None
    gpu_utilisation: float | None = None
    sm_utilisation: float | None = None
    running: float | None = None
    waiting: float | None = None
    p99_s: float | None = None
    p999_s: float | None = None
    ttft_p99_s: float | None = None
    prefix_hit_rate: float | None = None
    fragmentation: float | None = None
    rates: Mapping[str, float] = {}


class AccessSample(Struct, frozen=True, kw_only=True):
    """One finished request as Envoy's access log tells it; times in seconds, None = did not happen.

    `upstream` is the engine's `ip:port`, "" where no engine was reached. `status` is 0 where there was no answer.
    `flags` are Envoy's response flags, as its log spells them (UO, UF, UC, ...).
    `length`: the bucket of the request's. `fallback`: why a light pool served it, "" = none did. `probe`: it tried
    out what is half open.
    `orca` holds named metrics the engine sent with the answer.
    """

    upstream: str
    cluster: str
    route: str
    status: int
    flags: tuple[str, ...]
    first_byte_s: float | None
    total_s: float
    tier: str
    scenario: str
    request_class: str
    tenant: str
    params: str
    length: str = ""
    fallback: str = ""
    probe: bool = False
    orca: Mapping[str, float] = {}


class UsageSample(Struct, frozen=True, kw_only=True):
    """Tokens of one answer. `estimated`: the engine sent no usage, events were counted instead.

    `finish_reason` is what the engine said: "stop", "length", ...; "" where it said nothing. `request_bytes`: of
    the request's body, 0 = not known.
    """

    model: str
    scenario: str
    tier: str
    tenant: str
    pool: str
    prompt_tokens: int | None
    output_tokens: int
    finish_reason: str
    estimated: bool
    request_bytes: int = 0

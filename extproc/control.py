"""The control plane's keys in the config: telemetry, health, weights, usage, xDS."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from extproc.model.config import Config, Name

Seconds = Annotated[float, Field(gt=0, le=3600)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Url = Annotated[str, Field(pattern=r"^https?://[^\s@]+$")]


class DcgmSource(Config):
    """A DCGM exporter. `label` is joined to an endpoint's address, or to address:port."""

    url: Url
    label: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class PrometheusSource(Config):
    """A Prometheus server: one PromQL query per term, joined to endpoints by `label`."""

    url: Url
    label: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    queries: dict[Name, str]


class TelemetryConfig(Config):
    interval_s: Seconds
    timeout_s: Seconds
    max_concurrency: Annotated[int, Field(ge=1, le=4096)]
    stale_after_intervals: Annotated[float, Field(gt=0, le=1000)]
    neutral_after_intervals: Annotated[float, Field(gt=0, le=1000)]
    triton_statistics: bool
    dcgm: list[DcgmSource]
    prometheus: PrometheusSource | None


class HealthConfig(Config):
    interval_s: Seconds
    timeout_s: Seconds
    failures: Annotated[int, Field(ge=1, le=100)]


class WeightsConfig(Config):
    """Factors of the score's terms, and how far and how finely shares move."""

    memory: Fraction
    latency: Fraction
    window_s: Annotated[float, Field(ge=1, le=3600)]
    max_step: Annotated[float, Field(gt=0, le=1)]
    min_change: Fraction
    lb_policy: Annotated[str, Field(pattern="^(ROUND_ROBIN|LEAST_REQUEST)$")]


class UsageConfig(Config):
    enabled: bool
    max_held_bytes: Annotated[int, Field(ge=4096, le=1 << 24)]
    max_streams: Annotated[int, Field(ge=1, le=100_000)]


class ViewConfig(Config):
    """What one kind of Envoy is told, by shell-style patterns of its node id and cluster."""

    node_id: str
    node_cluster: str
    pools: Annotated[list[Name], Field(min_length=1)]


class XdsConfig(Config):
    enabled: bool
    views: list[ViewConfig]

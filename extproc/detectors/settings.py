"""The drift detectors' keys in the config."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from extproc.model.config import Config

Seconds = Annotated[float, Field(gt=0, le=86_400 * 7)]


class FreezeConfig(Config):
    """When the active set's latencies become a baseline by themselves."""

    after_s: Seconds
    samples: Annotated[int, Field(ge=10, le=1_000_000)]


class DriftConfig(Config):
    interval_s: Seconds
    window_s: Seconds
    min_samples: Annotated[int, Field(ge=8, le=4096)]
    d: Annotated[float, Field(gt=0, lt=1)]
    p: Annotated[float, Field(gt=0, lt=1)]
    p95_rise_ms: Annotated[float, Field(gt=0, le=3_600_000)]
    max_keys: Annotated[int, Field(ge=1, le=10_000)]
    freeze: FreezeConfig

"""The intent model in the configuration."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from extproc.model.config import Config


class IntentConfig(Config):
    """The classifier that reads what rules do not tell. `model` "" = the shipped one, else the path of a file of
    `extproc train-intent`; `sha256` "" = any file; `keep_unsure`: whether texts it is unsure about are kept."""

    enabled: bool
    model: str
    sha256: Annotated[str, Field(pattern="^([0-9a-f]{64})?$")]
    deadline_ms: Annotated[float, Field(gt=0, le=1000)]
    keep_unsure: bool
    keep_bytes: Annotated[int, Field(ge=4096, le=1 << 30)]

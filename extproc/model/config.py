"""The base of every configuration class."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")]
"""A name that may go into a header and a metric label."""

Tokens = Annotated[int, Field(ge=1, le=10_000_000)]


class Config(BaseModel):
    """Frozen; unknown keys are refused; no silent conversion of strings to numbers.

    Fields carry no defaults: the one place of every default is the shipped `extproc.yaml`, over which
    a user's file is laid. The rejected alternative, defaults in both places, drifts apart unseen.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

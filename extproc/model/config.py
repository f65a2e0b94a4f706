"""The base of every configuration class."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Config(BaseModel):
    """Frozen; unknown keys are refused; no silent conversion of strings to numbers.

    Fields carry no defaults: the one place of every default is the shipped `extproc.yaml`, over which
    a user's file is laid. The rejected alternative, defaults in both places, drifts apart unseen.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

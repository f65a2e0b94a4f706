"""The base of every configuration class."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from extproc.errors import Problem

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")]
"""A name that may go into a header and a metric label."""

Tokens = Annotated[int, Field(ge=1, le=10_000_000)]


class Config(BaseModel):
    """Frozen; unknown keys are refused; no silent conversion of strings to numbers.

    Fields carry no defaults: the one place of every default is the shipped `extproc.yaml`, over which
    a user's file is laid. The rejected alternative, defaults in both places, drifts apart unseen.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


SHAPE = "|"
"""Begins the tag of one shape among several that a value may have; where a mistake is, a tag says nothing."""


def problems_of(error: ValidationError, *, at: str = "") -> tuple[Problem, ...]:
    """Every mistake below the path `at`, in the words of somebody who writes the file."""
    return tuple(_problem(detail, at) for detail in error.errors(include_url=False))


def _problem(detail: ErrorDetails, at: str) -> Problem:
    parts = (str(part) for part in (at, *detail["loc"]))
    path = ".".join(part for part in parts if part and not part.startswith(SHAPE))
    if detail["type"] == "extra_forbidden":
        return Problem(path, "unknown key")
    if detail["type"] == "model_type":
        return Problem(path, "allowed: keys and their values")
    if detail["type"] == "string_pattern_mismatch":
        return Problem(path, f"allowed: text like {detail['ctx']['pattern']}")
    message = detail["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return Problem(path, message if message.startswith(("allowed", "not a", "Field")) else f"allowed: {message}")

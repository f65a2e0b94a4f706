"""What one look at one key is given: values, copied, so that a thread may take its time with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from extproc.detectors.baseline import Strata
from extproc.model.drift import DriftKey

Slots = Sequence[tuple[int, Sequence[float]]]
"""(values seen, a uniform sample of them) of each slot of a window."""


class View(Struct, frozen=True):
    """A key at one moment: its window by length bucket, and whether the quick look warns."""

    key: DriftKey
    strata: Mapping[str, Slots]
    warned: bool = False


class Reference(Struct, frozen=True):
    """The baseline a key is compared with; `parameter_set` "" = there is none."""

    parameter_set: str = ""
    strata: Strata = {}

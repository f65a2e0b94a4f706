"""The one error a run ends with in a single line."""

from __future__ import annotations


class CannotMeasure(Exception):
    """A program is missing, a part did not start, or a variant does not do what its name says."""

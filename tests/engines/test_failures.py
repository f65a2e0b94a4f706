"""Causes are label values: short words, and a failure is one line."""

from __future__ import annotations

import re

import pytest

from extproc.engines.failures import Cause, Failure


@pytest.mark.parametrize("cause", Cause)
def test_a_cause_is_a_label_value(cause: Cause) -> None:
    assert re.fullmatch(r"[a-z_]+", cause.value)


def test_a_failure_is_one_line() -> None:
    assert str(Failure(Cause.STATUS, "404")) == "status: 404"
    assert str(Failure(Cause.TIMEOUT)) == "timeout"

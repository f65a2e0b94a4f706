"""Errors say whose fault they are."""

from __future__ import annotations

import pytest

from extproc.errors import CannotStart, ClientFault, ConfigError, ExtprocError, OurFault, Problem


def test_a_clients_fault_carries_its_answer() -> None:
    fault = ClientFault(415, "encoded_body", "No.", param="content-encoding")
    assert (fault.status, fault.reason, fault.message, fault.param) == (
        415,
        "encoded_body",
        "No.",
        "content-encoding",
    )
    assert str(fault) == "No."
    assert ClientFault(400, "r", "m").param is None


def test_our_fault_has_a_reason() -> None:
    fault = OurFault("envoy_template", "it is missing")
    assert (fault.reason, str(fault)) == ("envoy_template", "it is missing")


def test_a_config_error_says_everything_at_once() -> None:
    error = ConfigError((Problem("a.b", "allowed: 1"), Problem("", "not YAML"), Problem("c", "unknown key")))
    assert str(error) == "a.b: allowed: 1; not YAML; c: unknown key"
    assert [problem.path for problem in error.problems] == ["a.b", "", "c"]


@pytest.mark.parametrize(
    "error", [ClientFault(400, "r", "m"), OurFault("r", "m"), ConfigError(()), CannotStart("port taken")]
)
def test_each_is_raised_on_purpose(error: Exception) -> None:
    assert isinstance(error, ExtprocError)

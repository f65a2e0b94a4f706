"""Whose fault the end of a request was."""

from __future__ import annotations

import pytest

from extproc.windows.outcome import Outcome, outcome
from tests.windows.samples import sample

HERE, NOWHERE = "10.0.0.1:8000", ""


@pytest.mark.parametrize(
    ("status", "flags", "upstream", "expected"),
    [
        (200, (), HERE, Outcome.OK),
        (101, (), HERE, Outcome.OK),
        (304, (), HERE, Outcome.OK),
        (400, (), HERE, Outcome.CLIENT_ERROR),
        (429, (), HERE, Outcome.CLIENT_ERROR),
        (499, (), HERE, Outcome.CLIENT_ERROR),
        (500, (), HERE, Outcome.ERROR),
        (503, (), HERE, Outcome.ERROR),
        (0, (), HERE, Outcome.ERROR),
        # Envoy's words for no answer.
        (503, ("UF",), HERE, Outcome.ERROR),
        (503, ("UF",), NOWHERE, Outcome.ERROR),
        (503, ("UF", "URX"), NOWHERE, Outcome.ERROR),
        (503, ("UC",), HERE, Outcome.ERROR),
        (503, ("UH",), NOWHERE, Outcome.ERROR),
        (504, ("UT",), HERE, Outcome.ERROR),
        (502, ("UPE",), HERE, Outcome.ERROR),
        # An answer that broke off.
        (200, ("UC",), HERE, Outcome.ERROR),
        (200, ("SI",), HERE, Outcome.ERROR),
        # Flags that say nothing of the engine.
        (200, ("DI",), HERE, Outcome.OK),
        (503, ("DI", "FI"), NOWHERE, Outcome.LOCAL),
        # Its own limit, also where a retry ran into it.
        (503, ("UO",), NOWHERE, Outcome.OVERFLOW),
        (503, ("UO",), HERE, Outcome.OVERFLOW),
        (503, ("UO", "URX"), NOWHERE, Outcome.OVERFLOW),
        # The client went.
        (0, ("DC",), HERE, Outcome.CANCELLED),
        (0, ("DC",), NOWHERE, Outcome.CANCELLED),
        (200, ("DC",), HERE, Outcome.CANCELLED),
        (200, ("DR",), HERE, Outcome.CANCELLED),
        (503, ("DC",), HERE, Outcome.ERROR),
        # Nobody asked an engine.
        (503, (), NOWHERE, Outcome.LOCAL),
        (504, (), NOWHERE, Outcome.LOCAL),
        (404, ("NR",), NOWHERE, Outcome.LOCAL),
        (503, ("NC",), NOWHERE, Outcome.LOCAL),
        (429, ("RL",), NOWHERE, Outcome.LOCAL),
        (403, ("UAEX",), NOWHERE, Outcome.LOCAL),
        (400, ("DPE",), NOWHERE, Outcome.LOCAL),
    ],
)
def test_the_end(status: int, flags: tuple[str, ...], upstream: str, expected: Outcome) -> None:
    assert outcome(sample(status=status, flags=flags, upstream=upstream)) is expected


@pytest.mark.parametrize("status", range(400, 500))
@pytest.mark.parametrize("flags", [(), ("DC",), ("UC",), ("NR",)])
def test_a_client_error_is_never_an_error_of_the_engine(status: int, flags: tuple[str, ...]) -> None:
    assert outcome(sample(status=status, flags=flags)) is not Outcome.ERROR


def test_outcomes_are_places_in_a_list() -> None:
    assert [int(one) for one in Outcome] == list(range(len(Outcome)))

"""The shape policies share."""

from __future__ import annotations

import pytest

from extproc.decide.context import GENERATES, change
from extproc.model.names import Dialect, Field
from extproc.model.values import ABSENT


def test_a_change_starts_from_the_value_so_far() -> None:
    values = {Field.TOP_P: 0.5}
    lowered = change(values, Field.TOP_P, 0.4, "rule", "why")
    assert (lowered.before, lowered.after, lowered.rule, lowered.reason) == (0.5, 0.4, "rule", "why")
    assert change(values, Field.TEMPERATURE, 0.4, "rule", "why").before is ABSENT
    assert change({Field.STREAM: False}, Field.STREAM, True, "rule", "why").before is False


@pytest.mark.parametrize("dialect", Dialect)
def test_every_format_but_embeddings_generates(dialect: Dialect) -> None:
    assert (dialect in GENERATES) == (dialect is not Dialect.OPENAI_EMBEDDINGS)

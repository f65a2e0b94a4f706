"""Triton's generate: output, no tokens."""

from __future__ import annotations

import pytest

from extproc.usage.dialects.triton import read
from extproc.usage.facts import NOTHING, Facts


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b'{"model_name":"m","model_version":"1","text_output":"a"}', Facts(model="m", pieces=1)),
        (b'{"model_name":"m","text_output":""}', Facts(model="m")),
        (b'{"model_name":"m","usage":"an output of its own","text_output":["a","b"]}', Facts(model="m", pieces=1)),
        (b'{"error":"backend failure text"}', Facts(failed=True)),
        (b"[]", NOTHING),
    ],
)
def test_answers(answer: bytes, expected: Facts) -> None:
    assert read(answer) == expected

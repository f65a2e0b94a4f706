"""llama.cpp's own completion."""

from __future__ import annotations

import pytest

from extproc.usage.dialects.llamacpp import read
from extproc.usage.facts import NOTHING, Facts, joined

LAST = b'{"content":"","stop":true,"model":"m","tokens_predicted":2,"tokens_evaluated":9,"stop_type":"limit"}'


def test_pieces_then_counts() -> None:
    piece = read(b'{"content":"a","stop":false,"tokens_predicted":1,"tokens_evaluated":9}')
    assert piece == Facts(pieces=1, adds=True)
    last = read(LAST)
    assert joined(piece, last) == Facts(
        model="m", prompt_tokens=9, output_tokens=2, finish_reason="length", pieces=1
    )


def test_several_prompts_add_up_in_a_list_and_in_a_stream() -> None:
    in_list = read(b"[" + LAST + b"," + LAST + b"]")
    assert (in_list.prompt_tokens, in_list.output_tokens) == (18, 4)
    in_stream = joined(joined(NOTHING, read(LAST)), read(LAST))
    assert (in_stream.prompt_tokens, in_stream.output_tokens) == (18, 4)


@pytest.mark.parametrize(
    ("flag", "expected"),
    [(b'"stopped_limit":true', "length"), (b'"stopped_eos":true', "stop"), (b'"stop_type":"word"', "stop")],
)
def test_how_it_ended(flag: bytes, expected: str) -> None:
    assert read(b'{"stop":true,' + flag + b"}").finish_reason == expected


def test_failures_and_what_does_not_fit() -> None:
    assert read(b'{"error":{"code":500}}').failed
    for other in (b"", b"3", b"[3]", b"[DONE]"):
        assert read(other) is NOTHING

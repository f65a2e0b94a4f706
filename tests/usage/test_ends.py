"""What the ends of a long document tell."""

from __future__ import annotations

import json

import pytest

from extproc.usage import ends
from extproc.usage.facts import Facts


def read(*parts: object) -> Facts:
    text = "".join(part if isinstance(part, str) else json.dumps(part) for part in parts)
    return ends.read(text[:200].encode(), text[-600:].encode())


USED = {"prompt_tokens": 3, "completion_tokens": 4}


def test_usage_and_reason_at_the_tail_model_at_the_head() -> None:
    answer = {"model": "m", "choices": [{"message": "x" * 1000, "finish_reason": "length"}], "usage": USED}
    assert read(answer) == Facts(model="m", prompt_tokens=3, output_tokens=4, finish_reason="length")


def test_what_a_model_wrote_is_no_usage() -> None:
    """Escaped in a string, and as an object before the real one."""
    wrote = {"usage": {"prompt_tokens": 99, "completion_tokens": 99}}
    as_text = {"content": "x" * 500 + json.dumps(json.dumps(wrote)) + json.dumps(wrote)}
    assert read(as_text).output_tokens is None
    assert read({"input": wrote, "usage": USED}).output_tokens == 4
    assert read({"usage": USED, "metadata": {"usage": {"text": "none"}}}).output_tokens == 4


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"input_tokens": 1, "output_tokens": 2}, (1, 2)),
        ({"input_tokens": 1, "cache_read_input_tokens": 5, "output_tokens": 2}, (6, 2)),
        ({"prompt_tokens": 3, "total_tokens": 3}, (3, 0)),
        ({"completion_tokens": 2}, (None, 2)),
        ({}, (None, None)),
        ({"completion_tokens": "2"}, (None, None)),
    ],
)
def test_every_name_of_the_counts(usage: dict[str, object], expected: tuple[int | None, int | None]) -> None:
    facts = read("x" * 900, {"usage": usage})
    assert (facts.prompt_tokens, facts.output_tokens) == expected


def test_llama_cpp_counts_at_the_top() -> None:
    facts = read("x" * 900, {"tokens_predicted": 7, "tokens_evaluated": 8, "stop_type": "limit"})
    assert (facts.prompt_tokens, facts.output_tokens, facts.finish_reason) == (8, 7, "length")
    assert read("x" * 900, '"tokens_predicted": 99999999999999999999999').output_tokens is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"finish_reason":"stop","stop_reason":"end"', "stop"),
        ('"finish_reason":null,"stop_reason":"tool_use"', "tool_calls"),
        ('"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}', "length"),
        ('"status":"incomplete"', "length"),
        ('"status":"completed"', "stop"),
        ('"nothing":1', ""),
    ],
)
def test_reasons(text: str, expected: str) -> None:
    assert read("{", text, ', "x": "' + "y" * 900).finish_reason == expected
    assert read("y" * 900, text).finish_reason == expected


@pytest.mark.parametrize(
    "tail", [b"", b'"usage": {', b'"usage": {"a"', b"\xff" * 99, b'"usage": ' + b'{"a":' * 9000]
)
def test_torn_tails_tell_nothing(tail: bytes) -> None:
    assert ends.read(b"", tail) == Facts(pieces=1)

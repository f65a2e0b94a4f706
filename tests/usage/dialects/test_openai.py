"""OpenAI-shaped answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from extproc.usage.dialects.openai import read
from extproc.usage.facts import NOTHING, Facts


def chunk(*deltas: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"choices": [{"delta": delta} for delta in deltas]} | more).encode()


@pytest.mark.parametrize("key", ["content", "reasoning_content", "reasoning", "refusal"])
def test_a_delta_with_text_is_a_piece(key: str) -> None:
    assert read(chunk({key: "a"})).pieces == 1
    assert read(chunk({key: ""})).pieces == 0
    assert read(chunk({key: None})).pieces == 0


def test_calls_are_pieces_and_each_choice_counts() -> None:
    calls = {"tool_calls": [{"function": {"arguments": "{"}}]}
    assert read(chunk(calls, {"content": "a"}, {"role": "assistant"}, {"function_call": {"name": "f"}})).pieces == 3
    assert read(b'{"choices":[{"text":"a"},{"text":""}]}').pieces == 1


def test_the_last_reason_counts() -> None:
    assert read(b'{"choices":[{"finish_reason":"length"},{"finish_reason":"stop"},{}]}').finish_reason == "stop"


def test_usage() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    assert read(chunk(usage=usage, model="m")) == Facts(model="m", prompt_tokens=3, output_tokens=2)
    assert read(chunk(usage=None)) == Facts()


@pytest.mark.parametrize(
    "failure", [b'{"object":"error","message":"x"}', b'{"error":{"code":500}}', b'{"error":"x"}']
)
def test_failures(failure: bytes) -> None:
    assert read(failure).failed


@pytest.mark.parametrize(
    "other", [b"[DONE]", b"", b"null", b"3", b'{"choices":{}}', b'{"usage":3}', b'{"choices":[3]}']
)
def test_what_does_not_fit_tells_nothing(other: bytes) -> None:
    assert read(other) is NOTHING

"""The Responses API: its object, alone and in events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from extproc.usage.dialects.openai_responses import read
from extproc.usage.facts import NOTHING, Facts


def response(**more: Any) -> dict[str, Any]:
    return {"object": "response", "model": "m", "usage": {"input_tokens": 3, "output_tokens": 2}} | more


def test_alone_and_in_an_event() -> None:
    expected = Facts(model="m", prompt_tokens=3, output_tokens=2, finish_reason="stop")
    whole = response(status="completed")
    assert read(json.dumps(whole).encode()) == expected
    assert read(json.dumps({"type": "response.completed", "response": whole}).encode()) == expected


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"status": "in_progress", "usage": None}, ""),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "content_filter"),
        ({"status": "incomplete", "incomplete_details": None}, "length"),
        ({"status": "failed", "error": {"code": "x"}}, "error"),
    ],
)
def test_how_it_ended(more: dict[str, Any], expected: str) -> None:
    facts = read(json.dumps(response(**more)).encode())
    assert facts.finish_reason == expected
    assert facts.failed is ("error" in more)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (b'{"type":"response.output_text.delta","delta":"a"}', Facts(pieces=1)),
        (b'{"type":"response.function_call_arguments.delta","delta":"{"}', Facts(pieces=1)),
        (b'{"type":"response.output_text.done","text":"a"}', NOTHING),
        (b'{"type":"error","message":"x"}', Facts(failed=True)),
        (b'{"type":7}', NOTHING),
        (b"[]", NOTHING),
    ],
)
def test_events(event: bytes, expected: Facts) -> None:
    assert read(event) == expected

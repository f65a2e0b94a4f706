"""Anthropic's messages and the events that build them."""

from __future__ import annotations

import pytest

from extproc.usage.dialects.anthropic import read
from extproc.usage.facts import NOTHING, Facts

START = b'{"type":"message_start","message":{"model":"c","usage":{"input_tokens":2,"cache_read_input_tokens":3,"output_tokens":1}}}'


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (START, Facts(model="c", prompt_tokens=5)),
        (b'{"type":"message_start","message":{}}', Facts()),
        (b'{"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}', Facts(pieces=1)),
        (
            b'{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":6,"input_tokens":0}}',
            Facts(output_tokens=6, finish_reason="tool_calls"),
        ),
        (b'{"type":"message_delta"}', Facts()),
        (b'{"type":"error","error":{"type":"overloaded_error"}}', Facts(failed=True)),
        (b'{"type":"ping"}', NOTHING),
        (b'{"type":"message_start"}', NOTHING),
        (b'{"type":"message_start","message":"m"}', NOTHING),
        (b"[DONE]", NOTHING),
    ],
)
def test_events(event: bytes, expected: Facts) -> None:
    assert read(event) == expected


def test_a_message() -> None:
    message = b'{"type":"message","model":"c","content":[{"type":"text"}],"stop_reason":"end_turn","usage":{"input_tokens":2,"output_tokens":3}}'
    assert read(message) == Facts(model="c", prompt_tokens=2, output_tokens=3, finish_reason="stop")

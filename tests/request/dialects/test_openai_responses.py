"""OpenAI responses: text as a string or as items, the length under its own key."""

from __future__ import annotations

from typing import Any

import pytest

from extproc.model.names import Tier
from tests.decide.worlds import decided

PATH = "/v1/responses"


@pytest.mark.parametrize(
    ("given", "tier"),
    [
        ("order #12345", Tier.STRICT),
        ([{"role": "user", "content": "order #12345"}], Tier.STRICT),
        (
            [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "slogan"}]}],
            Tier.CREATIVE,
        ),
        (
            [
                {"role": "user", "content": "slogan"},
                {"type": "function_call_output", "call_id": "1", "output": "x"},
            ],
            Tier.CREATIVE,
        ),
        ([{"role": "user", "content": "slogan"}, {"type": "reasoning", "summary": []}], Tier.CREATIVE),
        ([], Tier.NORMAL),
        (None, Tier.NORMAL),
    ],
)
def test_text(given: Any, tier: Tier) -> None:
    assert decided({"model": "m", "input": given}, PATH).decision.tier is tier


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        (b'{"input":"x"}', b'{"input":"x","temperature":0.7,"max_output_tokens":256}'),
        (b'{"max_output_tokens":9999}', b'{"max_output_tokens":256,"temperature":0.7}'),
        (b'{"max_tokens":9,"a":1}', b'{"a":1,"temperature":0.7,"max_output_tokens":9}'),
    ],
)
def test_length(body: bytes, sent: bytes) -> None:
    assert decided(body, PATH).sent == sent

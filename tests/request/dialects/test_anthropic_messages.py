"""Anthropic messages."""

from __future__ import annotations

from typing import Any

import pytest

from extproc.model.names import Engine, Tier
from tests.decide.worlds import decided, pools

PATH = "/v1/messages"


@pytest.mark.parametrize(
    ("messages", "tier"),
    [
        ([{"role": "user", "content": "order #12345"}], Tier.STRICT),
        ([{"role": "user", "content": [{"type": "text", "text": "a slogan"}]}], Tier.CREATIVE),
        ([{"role": "user", "content": [{"type": "image", "source": {}}]}], Tier.NORMAL),
        ([{"role": "user", "content": "slogan"}, {"role": "assistant", "content": "order #12345"}], Tier.CREATIVE),
    ],
)
def test_text(messages: Any, tier: Tier) -> None:
    body = {"model": "m", "system": "order #12345", "max_tokens": 10, "messages": messages}
    assert decided(body, PATH).decision.tier is tier


@pytest.mark.parametrize("engine", [Engine.VLLM, Engine.LLAMACPP])
def test_no_priority_and_one_length(engine: Engine) -> None:
    body = b'{"max_tokens":1024,"messages":[],"top_k":5,"stop_sequences":["\\n"]}'
    found = decided(body, PATH, over=pools(engine, by_priority=True))
    assert found.sent == body.replace(b"1024", b"256")[:-1] + b',"temperature":0.7}'

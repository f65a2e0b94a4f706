"""OpenAI completions."""

from __future__ import annotations

from typing import Any

import pytest

from extproc.model.names import Dialect, Engine, Tier
from tests.decide.worlds import decided, pools

PATH = "/v1/completions"


@pytest.mark.parametrize(
    ("prompt", "tier"),
    [
        ("order #12345", Tier.STRICT),
        (["x", "order #12345"], Tier.STRICT),
        ([1, 2, 3], Tier.NORMAL),
        ([[1], [2]], Tier.NORMAL),
        (None, Tier.NORMAL),
        ("", Tier.NORMAL),
    ],
)
def test_text(prompt: Any, tier: Tier) -> None:
    found = decided({"model": "m", "prompt": prompt}, PATH)
    assert found.decision.tier is tier
    assert found.json["prompt"] == prompt


@pytest.mark.parametrize("engine", [Engine.VLLM, Engine.LLAMACPP])
def test_fields(engine: Engine) -> None:
    body = b'{"prompt":"x","max_completion_tokens":9,"best_of":9}'
    found = decided(body, PATH, over=pools(engine))
    assert found.sent == b'{"prompt":"x","best_of":4,"temperature":0.7,"max_tokens":9}'
    assert found.audit[0].dialect == Dialect.OPENAI_COMPLETIONS.value

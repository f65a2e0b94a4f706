"""llama.cpp's own completion."""

from __future__ import annotations

from typing import Any

import pytest

from extproc.model.names import Engine, Tier
from tests.decide.worlds import LEGAL_TEXT, decided, pools

OVER = pools(Engine.LLAMACPP)


@pytest.mark.parametrize("path", ["/completion", "/completions"])
@pytest.mark.parametrize(
    ("body", "sent"),
    [
        (b'{"prompt":"x"}', b'{"prompt":"x","temperature":0.7,"n_predict":256}'),
        (b'{"n_predict":-1}', b'{"n_predict":256,"temperature":0.7}'),
        (b'{"n_predict":-2}', b'{"n_predict":256,"temperature":0.7}'),
        (b'{"n_predict":0}', b'{"n_predict":1,"temperature":0.7}'),
        (b'{"n_predict":20}', b'{"n_predict":20,"temperature":0.7}'),
        (b'{"n_predict":-1,"max_tokens":20}', b'{"n_predict":20,"temperature":0.7}'),
        (b'{"max_tokens":20,"a":1}', b'{"a":1,"temperature":0.7,"n_predict":20}'),
        (b'{"n_cmpl":9,"n_predict":1}', b'{"n_cmpl":4,"n_predict":1,"temperature":0.7}'),
        (b'{"priority":5,"n_predict":1}', b'{"priority":5,"n_predict":1,"temperature":0.7}'),
    ],
)
def test_fields(path: str, body: bytes, sent: bytes) -> None:
    assert decided(body, path, over=OVER).sent == sent


@pytest.mark.parametrize("asked", [-1, -2, 10**9])
def test_without_limit_means_the_cap_where_the_scenario_has_none(asked: int) -> None:
    found = decided({"prompt": LEGAL_TEXT, "n_predict": asked}, "/completion", over=OVER)
    assert found.json["n_predict"] == 5324


@pytest.mark.parametrize(
    ("prompt", "tier"),
    [
        ("order #12345", Tier.STRICT),
        (["a slogan"], Tier.CREATIVE),
        ([12, 34, "order #12345", 56], Tier.STRICT),
        ([1, 2], Tier.NORMAL),
        ({"prompt_string": "order #12345", "multimodal_data": ["aGk="]}, Tier.STRICT),
        ([{"prompt_string": "order #12345", "multimodal_data": ["aGk="]}], Tier.STRICT),
    ],
    ids=["string", "strings", "mixed_with_tokens", "tokens", "multimodal", "several_multimodal"],
)
def test_text(prompt: Any, tier: Tier) -> None:
    assert decided({"prompt": prompt}, "/completion", over=OVER).decision.tier is tier

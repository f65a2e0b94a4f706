"""OpenAI embeddings: nothing but a priority is ever written."""

from __future__ import annotations

import pytest

from extproc.model.names import Engine
from tests.decide.worlds import decided, pools

PATH = "/v1/embeddings"
BODY = b'{"input":["order #12345"],"temperature":"?","max_tokens":-1,"stream":7,"n":64,"dimensions":1E2}'


@pytest.mark.parametrize("engine", [Engine.VLLM, Engine.LLAMACPP])
def test_nothing_is_changed(engine: Engine) -> None:
    found = decided(BODY, PATH, over=pools(engine))
    assert found.answer.body is None
    assert found.decision.changes == ()
    assert found.decision.max_tokens is None
    assert "content-length" not in found.headers
    assert found.headers["x-llm-tier"] == b"strict"


def test_a_priority_is_added_where_the_pool_schedules_by_it() -> None:
    found = decided(BODY, PATH, over=pools(Engine.VLLM, by_priority=True))
    assert found.sent == BODY[:-1] + b',"priority":0}'

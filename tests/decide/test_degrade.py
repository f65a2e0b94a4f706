"""What a loaded pool's requests get."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from extproc.judge import Judged, judge
from extproc.model.protection import Protection
from extproc.snapshot import Snapshot, protected
from tests.decide.worlds import world
from tests.test_judge import arrival

POOLS = 'pools: [{name: big, engine: llamacpp, endpoints: ["http://a:1"]}]\n'
LOADED = Protection(degraded=("big",))
RULES = """
classify:
  rules:
    - {name: order, pattern: "order", tier: strict, scenario: order_query}
    - {name: slogan, pattern: "slogan", tier: creative, scenario: copywriting}
    - {name: law, pattern: "law", tier: strict, scenario: legal}
"""


def snapshot_of(text: str) -> Snapshot:
    return protected(world(text), Protection(), 1)


def judged(current: Snapshot, body: bytes) -> Judged:
    return judge(body, arrival(), current)


def params(text: str, protection: Protection = LOADED, **given: object) -> dict[str, object]:
    current = protected(snapshot_of(POOLS + RULES), protection, 2)
    body = {"model": "m", "messages": [{"role": "user", "content": text}], **given}
    found = judged(current, json.dumps(body).encode())
    return dict(json.loads(found.body or b"{}"))


@pytest.mark.parametrize(("text", "temperature"), [("hello", 0.7), ("a slogan", 0.7), ("my order", 0.3)])
def test_temperature_and_length(text: str, temperature: float) -> None:
    found = params(text)
    assert found["temperature"] == temperature
    assert found["speculative.n_max"] == 0
    assert isinstance(found["max_tokens"], int) and found["max_tokens"] <= 128


def test_a_client_that_asks_for_less_gets_less() -> None:
    found = params("hello", max_tokens=10, temperature=0.2)
    assert (found["max_tokens"], found["temperature"]) == (10, 0.2)
    assert params("hello", max_tokens=1000)["max_tokens"] == 128


def test_a_whitelisted_scenario_is_shortened_too() -> None:
    assert params("the law")["max_tokens"] == 128


def test_another_pools_load_changes_nothing() -> None:
    found = params("a slogan", Protection(degraded=("other",)))
    assert found["temperature"] == 0.9 and "speculative.n_max" not in found


def test_only_an_engine_that_takes_it_is_told_not_to_draft() -> None:
    current = snapshot_of(POOLS.replace("llamacpp", "vllm") + RULES)
    current = protected(current, LOADED, 2)
    found = judged(current, b'{"model":"m","messages":[{"role":"user","content":"hello"}]}')
    assert b"speculative" not in (found.body or b"")


def test_the_calm_snapshot_is_untouched() -> None:
    assert replace(snapshot_of(POOLS), generation=9).protection.calm

"""The order of the policies, and one change per field."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.decide import pipeline
from extproc.decide.pipeline import changes
from extproc.model.names import SAMPLING_FIELDS, Dialect, Engine, Field, RequestClass, Tier
from extproc.model.values import ABSENT, Scalar
from tests.decide.worlds import INSERTABLE, TEXTS, chat, context, decided, pools


def test_a_change_goes_from_the_clients_value_to_the_last() -> None:
    asked: dict[Field, Scalar] = {Field.TEMPERATURE: 0.9, Field.TOP_P: 0.99, Field.BEAMS: 6}
    found = {c.field: c for c in changes(context(asked, tier=Tier.STRICT))}
    assert (found[Field.TOP_P].before, found[Field.TOP_P].after) == (0.99, 0.92)
    assert found[Field.TOP_P].rule == "coupling.beams"


def test_rules_that_come_back_to_the_clients_value_change_nothing() -> None:
    over = "inference_params: {modes: {temperature: {normal: force}}}"
    asked: dict[Field, Scalar] = {Field.TEMPERATURE: 0.2, Field.MAX_TOKENS: 10}
    assert changes(context(asked, over=over, overrides={Field.TEMPERATURE: 0.2})) == ()


@pytest.mark.parametrize(("asked", "header"), [("0", b"0"), ("1", b"1"), ("1", b"1.0"), ("1.0", b"1")])
def test_the_same_number_is_no_change_however_it_is_spelled(asked: str, header: bytes) -> None:
    over = "inference_params: {modes: {temperature: {normal: force}}}"
    body = b'{"temperature":' + asked.encode() + b',"top_p":1,"max_tokens":10,"messages":[]}'
    found = decided(body, headers=[("x-param-temperature", header)], over=over, trusted=True)
    assert found.decision.changes == ()
    assert found.sent == body


def test_what_cannot_be_added_is_left_out() -> None:
    found = changes(context(insertable=frozenset(), tier=Tier.STRICT))
    assert found == ()


def test_what_is_there_can_be_changed_though_nothing_can_be_added() -> None:
    asked: dict[Field, Scalar] = {Field.TEMPERATURE: 0.9, Field.MAX_TOKENS: 1000}
    found = changes(context(asked, insertable=frozenset(), tier=Tier.STRICT))
    assert {c.field: c.after for c in found} == {Field.TEMPERATURE: 0.3, Field.MAX_TOKENS: 256}


def test_a_request_without_generation_only_gets_its_priority() -> None:
    seen = context({Field.TEMPERATURE: 2.0}, dialect=Dialect.OPENAI_EMBEDDINGS, by_priority=True, tier=Tier.STRICT)
    assert [(c.field, c.after) for c in changes(seen)] == [(Field.PRIORITY, 0)]


def test_the_length_comes_last_among_the_parameters() -> None:
    names = [policy.__module__.rpartition(".")[2] for policy in pipeline.GENERATION]
    assert names == [
        "tiers",
        "lowest_latency",
        "degrade",
        "override",
        "coupling",
        "coupling",
        "coupling",
        "coupling",
        "fan_out",
        "length",
        "priority",
    ]


@pytest.mark.parametrize("tier", Tier)
def test_a_plain_request(tier: Tier) -> None:
    found = decided(chat(TEXTS[tier]))
    assert found.decision.tier is tier
    expected: dict[Tier, dict[str, Any]] = {
        Tier.STRICT: {"temperature": 0.3, "top_p": 0.85, "max_tokens": 120},
        Tier.NORMAL: {"temperature": 0.7, "max_tokens": 256},
        Tier.CREATIVE: {"temperature": 0.9, "max_tokens": 256},
    }
    assert {k: v for k, v in found.json.items() if k not in ("model", "messages")} == expected[tier]
    assert {r.field: (r.from_, r.to) for r in found.audit} == {
        key: (None, value) for key, value in expected[tier].items()
    }


PROBABILITY = st.floats(0, 1)
GIVEN = st.fixed_dictionaries(
    {},
    optional={
        Field.TEMPERATURE: st.floats(0, 1e6) | st.sampled_from([0, 0.3, 0.7, 0.9, 1]),
        Field.TOP_P: PROBABILITY,
        Field.MAX_TOKENS: st.integers(0, 2**45) | st.sampled_from([0, 1, 120, 256, 5324, 5325]),
        Field.BEAMS: st.integers(0, 12),
        Field.N: st.integers(0, 100),
        Field.BEST_OF: st.integers(0, 100),
        Field.STREAM: st.booleans(),
        Field.PRIORITY: st.integers(-20, 20),
        Field.TOP_K: st.integers(-1, 100),
        Field.MIN_P: PROBABILITY,
        Field.MIROSTAT: st.integers(0, 2),
    },
)
OVERRIDES = st.fixed_dictionaries(
    {},
    optional={
        Field.TEMPERATURE: st.floats(0, 2),
        Field.TOP_P: PROBABILITY,
        Field.MAX_TOKENS: st.integers(1, 10_000_000),
    },
)
MODES = st.sampled_from(["", "force", "cap", "default"])


@settings(deadline=None, max_examples=400)
@given(
    asked=GIVEN,
    overrides=OVERRIDES,
    tier=st.sampled_from(Tier),
    scenario=st.sampled_from(["general", "legal", "order_query", "recommendation"]),
    engine=st.sampled_from(Engine),
    rank=st.sampled_from(RequestClass),
    by_priority=st.booleans(),
    lowest_latency=st.booleans(),
    mode=MODES,
)
def test_whatever_is_asked(
    *,
    asked: dict[Field, Any],
    overrides: dict[Field, Any],
    tier: Tier,
    scenario: str,
    engine: Engine,
    rank: RequestClass,
    by_priority: bool,
    lowest_latency: bool,
    mode: str,
) -> None:
    over = f"inference_params: {{modes: {{temperature: {{{tier.value}: {mode}}}}}}}" if mode else ""

    def judged(values: dict[Field, Any]) -> dict[Field, Any]:
        seen = context(
            values,
            over=over,
            tier=tier,
            scenario=scenario,
            overrides=overrides,
            engine=engine,
            request_class=rank,
            by_priority=by_priority,
            lowest_latency=lowest_latency,
        )
        found = changes(seen)
        assert len({c.field for c in found}) == len(found)
        result = dict(values)
        for change in found:
            assert change.before == values.get(change.field, ABSENT)
            assert (change.after, type(change.after)) != (change.before, type(change.before))
            assert change.rule
            assert change.reason
            assert change.field in values or change.field in INSERTABLE
            if change.after is ABSENT:
                result.pop(change.field)
            else:
                result[change.field] = change.after
        return result

    leaves = judged(asked)
    assert leaves[Field.MAX_TOKENS] <= 5324
    assert leaves.get(Field.N, 0) <= 4
    assert leaves.get(Field.BEST_OF, 0) <= 4
    assert leaves[Field.TEMPERATURE] >= 0
    if leaves[Field.TEMPERATURE] == 0:
        assert leaves.keys().isdisjoint(SAMPLING_FIELDS)
        if Field.TOP_P not in overrides:
            assert leaves[Field.TOP_P] == 1
    if asked.get(Field.STREAM) is True:
        assert leaves[Field.STREAM] is True
    assert (Field.PRIORITY in leaves) == (
        Field.PRIORITY in asked or (by_priority and engine is not Engine.LLAMACPP)
    )
    assert judged(leaves) == leaves, "judging what leaves changes nothing more"


@settings(deadline=None, max_examples=100)
@given(
    fields=st.fixed_dictionaries(
        {},
        optional={
            "temperature": st.floats(0, 2),
            "top_p": PROBABILITY,
            "max_tokens": st.integers(0, 9999),
            "max_completion_tokens": st.integers(0, 9999),
            "n_predict": st.integers(0, 9999),
            "num_beams": st.integers(0, 9),
            "top_k": st.integers(0, 99),
            "n": st.integers(0, 9),
            "stream": st.booleans(),
            "priority": st.integers(-5, 5),
        },
    ),
    text=st.sampled_from([*TEXTS.values(), "this contract"]),
    engine=st.sampled_from([Engine.VLLM, Engine.LLAMACPP]),
)
def test_a_body_judged_twice_is_judged_once(fields: dict[str, Any], text: str, engine: Engine) -> None:
    over = pools(engine, by_priority=True)
    first = decided(chat(text, **fields), over=over)
    second = decided(first.sent, over=over)
    assert second.decision.changes == ()
    assert second.sent == first.sent
    assert second.audit == ()

"""Priority class, and the engine's own field for it."""

from __future__ import annotations

import pytest

from extproc.decide import priority
from extproc.model.names import Dialect, Engine, Field, RequestClass, Tier
from extproc.model.values import Caller
from extproc.parameters import Scenario
from extproc.trust import Tenants
from tests.decide.worlds import chat, context, decided, pools

CRITICAL, NORMAL, BEST_EFFORT = RequestClass

PRECEDENCE = [
    ("nobody", None, None, None, NORMAL),
    ("scenario", None, None, CRITICAL, CRITICAL),
    ("tenant", None, BEST_EFFORT, None, BEST_EFFORT),
    ("tenant_before_scenario", None, BEST_EFFORT, CRITICAL, BEST_EFFORT),
    ("caller", CRITICAL, None, None, CRITICAL),
    ("caller_before_tenant", NORMAL, CRITICAL, None, NORMAL),
    ("caller_before_all", BEST_EFFORT, CRITICAL, NORMAL, BEST_EFFORT),
]


@pytest.mark.parametrize(
    ("caller", "tenant", "scenario", "expected"), [c[1:] for c in PRECEDENCE], ids=[c[0] for c in PRECEDENCE]
)
def test_precedence(
    caller: RequestClass | None, tenant: RequestClass | None, scenario: RequestClass | None, expected: RequestClass
) -> None:
    who = Caller(caller is not None, "token", "shop", None, caller, {})
    tenants = Tenants("authorization", {}, {"shop": tenant} if tenant else {})
    rules = Scenario(tier=Tier.NORMAL, request_class=scenario)
    assert priority.request_class(who, tenants, rules) is expected
    if scenario is None:
        assert priority.request_class(who, tenants, None) is expected


NUMBERS = [
    (Engine.VLLM, CRITICAL, -10),
    (Engine.VLLM, NORMAL, 0),
    (Engine.VLLM, BEST_EFFORT, 10),
    (Engine.TRITON, CRITICAL, 1),
    (Engine.TRITON, NORMAL, 2),
    (Engine.TRITON, BEST_EFFORT, 3),
]


@pytest.mark.parametrize(("engine", "rank", "number"), NUMBERS)
def test_numbers(engine: Engine, rank: RequestClass, number: int) -> None:
    dialect = Dialect.OPENAI_CHAT if engine is Engine.VLLM else Dialect.TRITON_INFER
    seen = context(engine=engine, request_class=rank, by_priority=True, dialect=dialect)
    assert [(c.field, c.after) for c in priority.engine_field(seen, {})] == [(Field.PRIORITY, number)]
    assert list(priority.engine_field(seen, {Field.PRIORITY: number})) == []
    assert [c.after for c in priority.engine_field(seen, {Field.PRIORITY: -99})] == [number]


@pytest.mark.parametrize("engine", Engine)
@pytest.mark.parametrize("rank", RequestClass)
def test_nothing_for_a_pool_that_does_not_schedule_by_it(engine: Engine, rank: RequestClass) -> None:
    assert list(priority.engine_field(context(engine=engine, request_class=rank), {})) == []


@pytest.mark.parametrize("rank", RequestClass)
def test_llamacpp_has_no_such_field(rank: RequestClass) -> None:
    seen = context(engine=Engine.LLAMACPP, request_class=rank, by_priority=True)
    assert list(priority.engine_field(seen, {})) == []


CLASS = ("x-request-class", b"critical")
KINDS = [
    (Engine.VLLM, "/v1/chat/completions", chat(), -10),
    (Engine.VLLM, "/v1/completions", {"prompt": "x"}, -10),
    (Engine.VLLM, "/v1/responses", {"input": "x"}, -10),
    (Engine.VLLM, "/v1/embeddings", {"input": "x"}, -10),
    (Engine.VLLM, "/v1/messages", chat(), None),
    (Engine.LLAMACPP, "/v1/chat/completions", chat(), None),
    (Engine.LLAMACPP, "/completion", {"prompt": "x"}, None),
    (Engine.TRITON, "/v2/models/m/generate", {"text_input": "x"}, None),
]


@pytest.mark.parametrize(("engine", "path", "body", "number"), KINDS, ids=[f"{k[0]}{k[1]}" for k in KINDS])
@pytest.mark.parametrize("by_priority", [True, False])
def test_the_field_in_a_body(
    engine: Engine, path: str, body: dict[str, object], number: int | None, by_priority: bool
) -> None:
    found = decided(body, path, [CLASS], over=pools(engine, by_priority=by_priority), trusted=True)
    assert found.headers["x-llm-priority"] == b"critical"
    assert found.json.get("priority") == (number if by_priority else None)
    assert "priority" not in found.json.get("parameters", {})


@pytest.mark.parametrize(("place", "top"), [("parameters", False), ("top_level", True)])
def test_triton_generate_for_a_model_that_reads_it(place: str, top: bool) -> None:
    over = pools(Engine.TRITON, by_priority=True) + (
        f"default_model: {{triton: {{generate_priority: true, generate_place: {place}}}}}"
    )
    found = decided({"text_input": "x"}, "/v2/models/m/generate", [CLASS], over=over, trusted=True)
    assert (found.json if top else found.json["parameters"])["priority"] == 1


def test_triton_infer_takes_it_in_parameters() -> None:
    body = {"inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1], "data": ["x"]}]}
    over = pools(Engine.TRITON, by_priority=True)
    found = decided(body, "/v2/models/m/infer", [CLASS], over=over, trusted=True)
    assert found.json["parameters"] == {"priority": 1}
    assert found.json["inputs"] == body["inputs"]


@pytest.mark.parametrize("asked", [-1000, 1000, 0.5, "first", None])
def test_a_clients_own_priority_gives_way(asked: object) -> None:
    found = decided(chat(priority=asked), over=pools(Engine.VLLM, by_priority=True))
    assert found.json["priority"] == 0


@pytest.mark.parametrize("asked", [False, True])
def test_a_boolean_is_no_priority(asked: bool) -> None:
    found = decided(chat(priority=asked), over=pools(Engine.VLLM, by_priority=True))
    assert found.json["priority"] == 0
    assert not isinstance(found.json["priority"], bool)


def test_by_scenario() -> None:
    over = "scenarios: {order_query: {request_class: critical}}\n" + pools(Engine.VLLM, by_priority=True)
    found = decided(chat("order #12345"), over=over)
    assert (found.json["priority"], found.headers["x-llm-priority"]) == (-10, b"critical")

"""What a request gets on its way: fields in the body, decision headers, audit lines, the access log line."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.asking import CHAT, CREATIVE, NORMAL, STRICT, TRUSTED, Answer, ask, chat
from tests.e2e.running import SHOP, SHOP_KEY, Engine, Stack

ORDERED = {"temperature": 0.3, "top_p": 0.85, "max_tokens": 120, "priority": 0}


def changed(stack: Stack, answer: Answer) -> dict[str, tuple[Any, Any]]:
    """The audit of one request as field to (from, to), checked to have each field once."""
    records = stack.sidecar.audit(answer.request_id)
    fields = [record["field"] for record in records]
    assert len(set(fields)) == len(fields)
    return {record["field"]: (record["from"], record["to"]) for record in records}


@pytest.mark.parametrize(
    ("text", "tier", "scenario", "expected"),
    [
        (STRICT, "strict", "order_query", ORDERED),
        (NORMAL, "normal", "general", {"temperature": 0.7, "max_tokens": 256, "priority": 0}),
        (CREATIVE, "creative", "copywriting", {"temperature": 0.9, "max_tokens": 256, "priority": 0}),
    ],
)
def test_each_tier_gets_its_parameters(
    stack: Stack, text: str, tier: str, scenario: str, expected: dict[str, Any]
) -> None:
    answer = ask(stack.port, CHAT, chat(text))
    assert answer.params == {"model": "demo", **expected}
    assert answer.decided("tier") == tier
    assert answer.decided("scenario") == scenario
    assert answer.decided("priority") == "normal"
    assert answer.decided("tenant") == "anonymous"
    assert answer.decided("pool") == "engine-1"
    assert answer.decided("params").startswith("e2e@")
    assert answer.seen.get("x-llm-continuation") == (["1"] if expected["max_tokens"] > 200 else None)
    assert answer.seen["content-length"] == [str(answer.received["body_bytes"])]
    assert changed(stack, answer) == {field: (None, value) for field, value in expected.items()}


def test_the_access_log_says_what_was_decided(stack: Stack) -> None:
    line = stack.access(ask(stack.port, CHAT, chat(STRICT), {**TRUSTED, "x-request-class": "critical"}).request_id)
    assert {key: line[key] for key in ("tier", "scenario", "class", "tenant", "pool", "cluster", "code")} == {
        "tier": "strict",
        "scenario": "order_query",
        "class": "critical",
        "tenant": "anonymous",
        "pool": "engine-1",
        "cluster": "engine-1",
        "code": 200,
    }
    assert line["route"] == "pool-critical"


def test_values_of_the_client_are_lowered_where_the_tier_caps(stack: Stack) -> None:
    answer = ask(stack.port, CHAT, chat(STRICT, temperature=1.5, top_p=0.99, max_tokens=9000))
    assert answer.params == {"model": "demo", **ORDERED}
    assert changed(stack, answer) == {
        "temperature": (1.5, 0.3),
        "top_p": (0.99, 0.85),
        "max_tokens": (9000, 120),
        "priority": (None, 0),
    }


def test_values_below_every_limit_are_kept(stack: Stack) -> None:
    body = (
        b'{ "model":"demo" ,"temperature":1E-1,"max_tokens": 50,"seed":9007199254740993,"x":-0.0,"priority":0,'
        + (b'"messages":[{"role":"user","content":"order #12345678 \\ud83d\\ude00"}]}')
    )
    answer = ask(stack.port, CHAT, body)
    assert stack.engine.body(answer.received) == body
    assert changed(stack, answer) == {}


def test_only_named_values_change_and_all_others_keep_their_bytes(stack: Stack) -> None:
    kept = b'"seed":9007199254740993,"b":0.1000,"c":1E2,"d":-0.0,"e":1e400,"f":"\\ud83d\\ude00"'
    messages = b'"messages":[{"role":"user","content":"order #12345678"}]'
    answer = ask(stack.port, CHAT, b'{"temperature":1.0,' + kept + b',"max_tokens":120,' + messages + b"}")
    sent_on = stack.engine.body(answer.received)
    assert kept in sent_on
    assert messages in sent_on
    assert sent_on.startswith(b'{"temperature":0.3,')


def test_creative_keeps_a_temperature_of_the_client(front: int) -> None:
    assert ask(front, CHAT, chat(CREATIVE, temperature=1.8)).params["temperature"] == 1.8


def test_one_spelling_of_the_length_leaves(front: int) -> None:
    body = chat(STRICT, max_completion_tokens=1_000_000, n_predict=77, max_tokens=99_999)
    params = ask(front, CHAT, body).params
    lengths = {key: value for key, value in params.items() if "tokens" in key or key == "n_predict"}
    assert lengths == {"max_tokens": 77}


def test_a_repeated_key_reaches_the_engine_once(stack: Stack) -> None:
    body = b'{"max_tokens":5,"\\u006dax_tokens":99999,"messages":[{"role":"user","content":"order #12345678"}]}'
    answer = ask(stack.port, CHAT, body)
    sent_on = stack.engine.body(answer.received)
    assert answer.params["max_tokens"] == 120
    assert sent_on.count(b"ax_tokens") == 1


def test_answers_per_request_are_limited(front: int) -> None:
    params = ask(front, CHAT, chat(STRICT, n=64, best_of=64)).params
    assert (params["n"], params["best_of"]) == (4, 4)


# ── the other APIs ───────────────────────────────────────────────────────────────────────────────


def test_completions(front: int) -> None:
    answer = ask(front, "/v1/completions", {"model": "demo", "prompt": STRICT, "max_tokens": 4000})
    assert answer.params == {"model": "demo", **ORDERED}
    assert answer.decided("pool") == "engine-1"


def test_responses(front: int) -> None:
    answer = ask(front, "/v1/responses", {"model": "demo", "input": STRICT, "max_output_tokens": 4000})
    assert answer.params == {
        "model": "demo",
        "temperature": 0.3,
        "top_p": 0.85,
        "max_output_tokens": 120,
        "priority": 0,
    }


def test_embeddings_get_a_priority_alone(stack: Stack) -> None:
    answer = ask(stack.port, "/v1/embeddings", {"model": "demo", "input": STRICT})
    assert answer.params == {"model": "demo", "priority": 0}
    assert changed(stack, answer) == {"priority": (None, 0)}


def test_anthropic_messages_get_no_priority_field(front: int) -> None:
    body = {"model": "demo", "max_tokens": 4000, "messages": [{"role": "user", "content": STRICT}]}
    answer = ask(front, "/v1/messages", body)
    assert answer.params == {"model": "demo", "temperature": 0.3, "top_p": 0.85, "max_tokens": 120}
    assert answer.decided("pool") == "engine-1"


@pytest.mark.parametrize("path", ["/completion", "/completions"])
def test_llamacpp_completion(front: int, path: str) -> None:
    answer = ask(front, path, {"prompt": STRICT, "n_predict": -1})
    assert answer.params == {"temperature": 0.3, "top_p": 0.85, "n_predict": 120}
    assert answer.decided("pool") == "engine-3"


def test_triton_generate(stack: Stack) -> None:
    body = {"text_input": STRICT, "parameters": {"max_tokens": 4000, "stop": "x"}}
    answer = ask(stack.port, "/v2/models/m/generate", body)
    assert answer.params["parameters"] == {"max_tokens": 120, "stop": "x", "temperature": 0.3, "top_p": 0.85}
    assert answer.decided("pool") == "engine-2"
    assert changed(stack, answer) == {
        "max_tokens": (4000, 120),
        "temperature": (None, 0.3),
        "top_p": (None, 0.85),
    }


def test_other_methods_and_unread_paths_pass_but_are_routed_and_ranked(stack: Stack) -> None:
    models = ask(stack.port, "/v1/models", method="GET")
    assert models.decided("pool") == "engine-1"
    assert models.decided("priority") == "normal"
    tritons = ask(stack.port, "/v2/models/m", method="GET")
    assert tritons.decided("pool") == "engine-2"
    assert stack.access(tritons.request_id)["cluster"] == "engine-2"
    count = ask(stack.port, "/v1/messages/count_tokens", chat(STRICT, temperature=2))
    assert count.params["temperature"] == 2


# ── class, tenant, label, override ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("wanted", "vllm", "triton"), [("critical", -10, 1), ("normal", 0, 2), ("best-effort", 10, 3)]
)
def test_the_class_becomes_the_priority_of_each_engine(front: int, wanted: str, vllm: int, triton: int) -> None:
    headers = {**TRUSTED, "x-request-class": wanted}
    answer = ask(front, CHAT, chat(NORMAL), headers)
    assert answer.params["priority"] == vllm
    assert answer.decided("priority") == wanted
    assert ask(front, "/v1/embeddings", {"input": "a"}, headers).params["priority"] == vllm
    generated = ask(front, "/v2/models/ranked/generate", {"text_input": NORMAL}, headers)
    assert generated.params["parameters"]["priority"] == triton
    unranked = ask(front, "/v2/models/other/generate", {"text_input": NORMAL}, headers)
    assert "priority" not in unranked.params["parameters"]
    assert "priority" not in ask(front, "/completion", {"prompt": NORMAL}, headers).params


@pytest.mark.parametrize(("wanted", "level"), [("critical", 1), ("normal", 2), ("best-effort", 3)])
def test_triton_infer_gets_a_priority_among_its_parameters(stack: Stack, wanted: str, level: int) -> None:
    body = {"inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1], "data": [NORMAL]}]}
    answer = ask(stack.port, "/v2/models/m/infer", body, {**TRUSTED, "x-request-class": wanted})
    assert answer.params.get("parameters") == {"priority": level}
    assert answer.decided("pool") == "engine-2"
    assert changed(stack, answer) == {"priority": (None, level)}


def test_a_priority_of_the_client_is_replaced(stack: Stack) -> None:
    answer = ask(stack.port, CHAT, chat(NORMAL, priority=-1000))
    assert answer.params["priority"] == 0
    assert changed(stack, answer)["priority"] == (-1000, 0)


@pytest.mark.parametrize(("tenant", "rank"), [("vip", "critical"), ("batch", "best-effort"), ("else", "normal")])
def test_a_trusted_tenant_has_its_class(front: int, tenant: str, rank: str) -> None:
    answer = ask(front, CHAT, chat(NORMAL), {**TRUSTED, "x-tenant": tenant})
    assert (answer.decided("tenant"), answer.decided("priority")) == (tenant, rank)


def test_a_named_class_stands_before_the_tenants(front: int) -> None:
    headers = {**TRUSTED, "x-tenant": "vip", "x-request-class": "best-effort"}
    assert ask(front, CHAT, chat(NORMAL), headers).decided("priority") == "best-effort"


def test_a_configured_key_names_the_tenant_and_reaches_the_engine(stack: Stack) -> None:
    answer = ask(stack.port, CHAT, chat(NORMAL), {"authorization": f"Bearer {SHOP_KEY}"})
    assert (answer.decided("tenant"), answer.decided("priority")) == (SHOP, "critical")
    assert answer.seen["authorization"] == ["***"]
    assert stack.sidecar.audit(answer.request_id)[0]["tenant"] == SHOP
    assert SHOP_KEY not in (stack.sidecar.state_dir / "audit.jsonl").read_text()


@pytest.mark.parametrize(
    ("label", "tier", "scenario"),
    [
        ("legal", "strict", "legal"),
        ("recommendation", "creative", "recommendation"),
        ("strict", "strict", "general"),
    ],
)
def test_a_trusted_label_decides_tier_and_scenario(front: int, label: str, tier: str, scenario: str) -> None:
    answer = ask(front, CHAT, chat(CREATIVE), {**TRUSTED, "x-business-label": label})
    assert (answer.decided("tier"), answer.decided("scenario")) == (tier, scenario)


def test_a_whitelisted_scenario_is_bounded_by_the_model_alone(front: int) -> None:
    text = "Explain this contract clause"
    assert ask(front, CHAT, chat(text, max_tokens=5000)).params["max_tokens"] == 5000
    assert ask(front, CHAT, chat(text)).params["max_tokens"] == 5324  # 65 % of 8192
    assert ask(front, CHAT, chat(text, max_tokens=6000)).params["max_tokens"] == 5324


def test_trusted_overrides_win_over_the_tier_and_are_audited(stack: Stack) -> None:
    wanted = {"x-param-temperature": "1.2", "x-param-top-p": "0.5", "x-param-max-tokens": "900"}
    answer = ask(stack.port, CHAT, chat(STRICT), {**TRUSTED, **wanted})
    assert answer.params == {"model": "demo", "temperature": 1.2, "top_p": 0.5, "max_tokens": 900, "priority": 0}
    assert not [name for name in answer.seen if name.startswith("x-param")]
    rules = {record["field"]: record["rule"] for record in stack.sidecar.audit(answer.request_id)}
    assert rules == {
        "temperature": "override",
        "top_p": "override",
        "max_tokens": "override",
        "priority": "priority.normal",
    }


@pytest.mark.parametrize(("model", "cap"), [("tiny-1", 130), ("demo", 5324)])
def test_no_override_lifts_the_length_over_the_cap(front: int, model: str, cap: int) -> None:
    headers = {**TRUSTED, "x-param-max-tokens": "1000000"}
    body = chat(NORMAL) | {"model": model}
    assert ask(front, CHAT, body, headers).params["max_tokens"] == cap
    assert ask(front, CHAT, body | {"max_tokens": 999_999}, headers).params["max_tokens"] == cap
    labelled = {**TRUSTED, "x-business-label": "legal"}
    assert ask(front, CHAT, body | {"max_tokens": 999_999}, labelled).params["max_tokens"] == cap


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-param-temperature", "hot"),
        ("x-param-temperature", "nan"),
        ("x-param-max-tokens", "-1"),
        ("x-request-class", "urgent"),
        ("x-tenant", "a b"),
    ],
)
def test_a_trusted_header_that_cannot_be_read_is_refused(front: int, name: str, value: str) -> None:
    error = ask(front, CHAT, chat(STRICT), {**TRUSTED, name: value}).error(400, "invalid_header")
    assert error["param"] == name


# ── audit ────────────────────────────────────────────────────────────────────────────────────────


def test_an_audit_record_has_every_field_and_no_text_of_the_prompt(stack: Stack) -> None:
    text = f"{STRICT} my name is Eleonora-Quendolyn"
    answer = ask(stack.port, CHAT, chat(text, temperature=1))
    record = next(each for each in stack.sidecar.audit(answer.request_id) if each["field"] == "temperature")
    assert record.pop("ts") > 1_600_000_000
    assert record.pop("reason")
    assert record == {
        "request_id": answer.request_id,
        "tenant": "anonymous",
        "dialect": "openai_chat",
        "field": "temperature",
        "from": 1,
        "to": 0.3,
        "rule": "tier.strict",
        "tier": "strict",
        "scenario": "order_query",
        "confidence": 1.0,
        "parameter_set": answer.decided("params"),
    }
    for log in (stack.sidecar.state_dir / "audit.jsonl", stack.sidecar.running.log_path, stack.envoy.access_log):
        written = log.read_text()
        assert "Quendolyn" not in written
        assert "12345678" not in written


def test_the_engine_finds_no_trace_of_a_second_request(engine: Engine, front: int) -> None:
    """One request in, one request out: nothing is mirrored or tried twice."""
    answer = ask(front, CHAT, chat(STRICT))
    assert engine.one(answer.request_id) == answer.received

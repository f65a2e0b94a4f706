"""Output length: what is granted, by which rule, and that nothing exceeds the cap."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.decide import length
from extproc.decide.length import granted_tokens
from extproc.model.names import Dialect, Engine, Field
from extproc.model.values import ABSENT
from tests.decide.worlds import CHAT, LEGAL_TEXT, chat, context, decided, refused

CAP = 5324
"""floor(0.65 x 8192), the default model's."""

GRANTS = [
    ("absent_default", "general", None, 256, "length.default"),
    ("below_default", "general", 100, 100, "length.asked"),
    ("at_default", "general", 256, 256, "length.asked"),
    ("above_default", "general", 257, 256, "length.default"),
    ("huge", "general", 10**9, 256, "length.default"),
    ("zero", "general", 0, 1, "length.engine_minimum"),
    ("one", "general", 1, 1, "length.asked"),
    ("order_query_absent", "order_query", None, 120, "length.scenario"),
    ("order_query_below", "order_query", 30, 30, "length.asked"),
    ("order_query_above", "order_query", 121, 120, "length.scenario"),
    ("returns_absent", "returns", None, 210, "length.scenario"),
    ("returns_above", "returns", 5000, 210, "length.scenario"),
    ("recommendation_absent", "recommendation", None, 350, "length.scenario"),
    ("recommendation_between", "recommendation", 300, 300, "length.asked"),
    ("recommendation_above", "recommendation", 351, 350, "length.scenario"),
    ("payment_has_no_length", "payment", None, 256, "length.default"),
    ("copywriting_has_no_length", "copywriting", 999, 256, "length.default"),
    ("unknown_scenario", "elsewhere", None, 256, "length.default"),
    ("legal_below", "legal", 3000, 3000, "length.asked"),
    ("legal_at_cap", "legal", CAP, CAP, "length.asked"),
    ("legal_above_cap", "legal", CAP + 1, CAP, "length.cap"),
    ("legal_absent", "legal", None, CAP, "length.cap"),
]


@pytest.mark.parametrize(
    ("scenario", "asked", "tokens", "rule"), [case[1:] for case in GRANTS], ids=[case[0] for case in GRANTS]
)
def test_granted(scenario: str, asked: int | None, tokens: int, rule: str) -> None:
    limit = granted_tokens(context(scenario=scenario), asked)
    assert limit is not None
    assert (limit.tokens, limit.rule) == (tokens, rule)


CAPS = [
    ("default", "anything", "", 5324),
    ("seventy_b", "Llama-3-70B-Instruct", "", 2048),
    ("seventy_b_lower_case", "llama-3.3-70b", "", 2048),
    ("wide_window", "w", "models: [{name: wide, match: [w], context_window: 32768}]", 21299),
    (
        "wide_window_explicit",
        "w",
        "models: [{name: wide, match: [w], context_window: 32768, max_output_tokens: 2048}]",
        2048,
    ),
    (
        "explicit_above_fraction",
        "w",
        "models: [{name: wide, match: [w], context_window: 1000, max_output_tokens: 900}]",
        650,
    ),
    ("tiny_window", "w", "models: [{name: tiny, match: [w], context_window: 1}]", 1),
    ("default_explicit", "w", "default_model: {max_output_tokens: 77}", 77),
    ("fraction", "w", "inference_params: {max_tokens: {context_fraction: 0.5}}", 4096),
    ("whole_window", "w", "inference_params: {max_tokens: {context_fraction: 1.0}}", 8192),
]


@pytest.mark.parametrize(("model", "over", "cap"), [case[1:] for case in CAPS], ids=[case[0] for case in CAPS])
@pytest.mark.parametrize("how", ["legal_absent", "legal_huge", "override"])
def test_the_cap_of_a_model(how: str, model: str, over: str, cap: int) -> None:
    overrides = {Field.MAX_TOKENS: 10_000_000} if how == "override" else None
    asked = None if how == "legal_absent" else 10_000_000
    limit = granted_tokens(context(model=model, over=over, scenario="legal", overrides=overrides), asked)
    assert limit is not None
    assert (limit.tokens, limit.rule) == (cap, "length.cap")


@pytest.mark.parametrize("scenario", ["general", "order_query", "recommendation"])
def test_a_cap_below_the_scenario(scenario: str) -> None:
    over = "models: [{name: tiny, match: [m], max_output_tokens: 50}]"
    limit = granted_tokens(context(over=over, scenario=scenario), None)
    assert limit is not None
    assert (limit.tokens, limit.rule) == (50, "length.cap")


OVERRIDES = [
    (1, 1, "override"),
    (20, 20, "override"),
    (4000, 4000, "override"),
    (CAP, CAP, "override"),
    (CAP + 1, CAP, "length.cap"),
    (10_000_000, CAP, "length.cap"),
]


@pytest.mark.parametrize(("wanted", "tokens", "rule"), OVERRIDES)
@pytest.mark.parametrize("asked", [None, 1, 300, 10**9])
@pytest.mark.parametrize("scenario", ["general", "order_query", "legal"])
def test_override(scenario: str, asked: int | None, wanted: int, tokens: int, rule: str) -> None:
    limit = granted_tokens(context(scenario=scenario, overrides={Field.MAX_TOKENS: wanted}), asked)
    assert limit is not None
    assert (limit.tokens, limit.rule) == (tokens, rule)


def test_override_by_header_is_audited_and_capped() -> None:
    headers = [("x-param-max-tokens", b"9999")]
    found = decided(chat(max_tokens=5) | {"model": "a-70b"}, headers=headers, trusted=True)
    assert found.json["max_tokens"] == 2048
    assert [(r.field, r.from_, r.to, r.rule) for r in found.audit if r.field == "max_tokens"] == [
        ("max_tokens", 5, 2048, "length.cap")
    ]


# Whitelisted and without a length: nothing is added unless the engine's own default exceeds the cap.
ENGINE_DEFAULTS = [
    ("unlisted_is_unlimited", Dialect.OPENAI_CHAT, "", CAP),
    ("completions_say_16", Dialect.OPENAI_COMPLETIONS, "", None),
    ("engine_says_less", Dialect.OPENAI_CHAT, "engines: {vllm: {default_output_tokens: {openai_chat: 512}}}", None),
    (
        "engine_says_the_cap",
        Dialect.OPENAI_CHAT,
        f"engines: {{vllm: {{default_output_tokens: {{openai_chat: {CAP}}}}}}}",
        None,
    ),
    (
        "engine_says_more",
        Dialect.OPENAI_CHAT,
        f"engines: {{vllm: {{default_output_tokens: {{openai_chat: {CAP + 1}}}}}}}",
        CAP,
    ),
    ("profile_says_less", Dialect.OPENAI_CHAT, "models: [{name: p, match: [m], default_output_tokens: 64}]", None),
    (
        "profile_says_more",
        Dialect.OPENAI_COMPLETIONS,
        "models: [{name: p, match: [m], default_output_tokens: 9000}]",
        CAP,
    ),
    ("cap_below_16", Dialect.OPENAI_COMPLETIONS, "models: [{name: p, match: [m], max_output_tokens: 15}]", 15),
]


@pytest.mark.parametrize(
    ("dialect", "over", "tokens"), [c[1:] for c in ENGINE_DEFAULTS], ids=[c[0] for c in ENGINE_DEFAULTS]
)
def test_whitelisted_and_absent(dialect: Dialect, over: str, tokens: int | None) -> None:
    limit = granted_tokens(context(over=over, scenario="legal", dialect=dialect), None)
    assert (limit.tokens if limit else None) == tokens


def test_unlimited_counts_as_more_than_any_cap() -> None:
    over = "engines: {llamacpp: {default_output_tokens: {llamacpp_completion: 64}}}"
    plain = context(over=over, scenario="legal", dialect=Dialect.LLAMACPP_COMPLETION, engine=Engine.LLAMACPP)
    assert granted_tokens(plain, None) is None
    found = decided({"prompt": LEGAL_TEXT, "n_predict": -1}, "/completion", over=over)
    assert found.json["n_predict"] == CAP


def test_whitelisted_and_absent_leaves_the_body_alone() -> None:
    over = "engines: {vllm: {default_output_tokens: {openai_chat: 512}}}"
    body = b'{"messages":[{"role":"user","content":"this contract"}],"temperature":0.2}'
    found = decided(body, over=over)
    assert found.decision.scenario == "legal"
    assert b"max_" not in found.sent
    assert found.decision.max_tokens is None
    assert found.decision.continuation is False
    assert "x-llm-continuation" not in found.headers


MINIMUM = [
    ("engine", "engines: {vllm: {min_output_tokens: 16}}", 3, 16, "length.engine_minimum"),
    ("engine_met", "engines: {vllm: {min_output_tokens: 16}}", 16, 16, "length.asked"),
    ("profile", "models: [{name: p, match: [m], min_output_tokens: 8}]", 3, 8, "length.engine_minimum"),
    ("profile_zero", "models: [{name: p, match: [m], min_output_tokens: 0}]", 0, 0, "length.asked"),
    ("over_default", "engines: {vllm: {min_output_tokens: 300}}", 3, 300, "length.engine_minimum"),
    (
        "never_over_the_cap",
        "models: [{name: p, match: [m], min_output_tokens: 100, max_output_tokens: 50}]",
        3,
        3,
        "length.asked",
    ),
]


@pytest.mark.parametrize(
    ("over", "asked", "tokens", "rule"), [case[1:] for case in MINIMUM], ids=[case[0] for case in MINIMUM]
)
def test_the_engines_minimum(over: str, asked: int, tokens: int, rule: str) -> None:
    limit = granted_tokens(context(over=over), asked)
    assert limit is not None
    assert (limit.tokens, limit.rule) == (tokens, rule)


def test_the_minimum_holds_for_a_trusted_caller() -> None:
    over = "engines: {vllm: {min_output_tokens: 16}}"
    limit = granted_tokens(context(over=over, overrides={Field.MAX_TOKENS: 2}), None)
    assert limit is not None
    assert limit.tokens == 16


def test_the_config_decides_default_and_whitelist() -> None:
    over = "inference_params: {max_tokens: {default: 99, whitelist: [general]}}"
    limit = granted_tokens(context(over=over, scenario="payment"), None)
    assert limit is not None
    assert limit.tokens == 99
    limit = granted_tokens(context(over=over, scenario="general"), 5000)
    assert limit is not None
    assert limit.tokens == 5000


def test_embeddings_have_no_length() -> None:
    assert list(length.grant(context(dialect=Dialect.OPENAI_EMBEDDINGS), {})) == []


def test_an_unchanged_length_is_no_change() -> None:
    values = {Field.MAX_TOKENS: 100}
    assert list(length.grant(context(values), values)) == []


def test_a_spelling_alone_is_a_change() -> None:
    values = {Field.MAX_TOKENS: 100}
    found = list(length.grant(context(values, respell=True), values))
    assert [(c.before, c.after, c.rule) for c in found] == [(100, 100, "length.spelling")]


# What a client may write, and what of it counts.
VALUES = [
    (b"100", 100),
    (b"1E2", 100),
    (b"100.0", 100),
    (b"1e15", 256),
    (b"9007199254740993", 256),
    (b"123456789012345678901234567890", 256),
    (b"1e300", 256),
    (b"0", 1),
    (b"-0", 1),
    (b"null", 256),
]


@pytest.mark.parametrize(("spelled", "granted"), VALUES, ids=[value[0].decode() for value in VALUES])
@pytest.mark.parametrize("key", ["max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict"])
def test_values(key: str, spelled: bytes, granted: int) -> None:
    found = decided(b'{"messages":[],"' + key.encode() + b'":' + spelled + b"}")
    keys = [key for key in found.json if key not in ("messages", "temperature")]
    assert len(keys) == 1
    assert found.json[keys[0]] == granted
    assert found.decision.max_tokens == granted


@pytest.mark.parametrize("spelled", [b"100", b"1E2", b"100.0", b"100.00", b"1e+2", b"100e0"])
def test_an_accepted_number_keeps_its_spelling(spelled: bytes) -> None:
    found = decided(b'{"max_tokens":' + spelled + b"}")
    assert b'"max_tokens":' + spelled in found.sent
    assert Field.MAX_TOKENS not in found.changes


REFUSED = [
    b'"100"',
    b"true",
    b"false",
    b"[100]",
    b'{"a":1}',
    b"-1",
    b"-5.0",
    b"1.5",
    b"0.1",
    b"1e400",
    b"-1e400",
    b'""',
]


@pytest.mark.parametrize("spelled", REFUSED, ids=[value.decode() for value in REFUSED])
@pytest.mark.parametrize("key", ["max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict"])
def test_what_is_no_length_is_refused(key: str, spelled: bytes) -> None:
    status, error = refused(b'{"messages":[],"' + key.encode() + b'":' + spelled + b"}")
    assert (status, error["param"]) == (400, key)
    assert error["message"] == f"Invalid '{key}': expected a whole number of tokens, 0 or more."


SEVERAL: list[tuple[dict[str, Any], int]] = [
    ({"max_tokens": 50, "max_completion_tokens": 40}, 40),
    ({"max_tokens": 40, "max_completion_tokens": 1_000_000}, 40),
    ({"max_tokens": 1_000_000, "n_predict": 30}, 30),
    ({"max_tokens": None, "max_output_tokens": 7}, 7),
    ({"max_tokens": "x", "max_completion_tokens": 9}, 9),
    ({"max_tokens": -1, "max_completion_tokens": 9}, 9),
    ({"max_tokens": 1.5, "n_predict": 9}, 9),
    ({"max_tokens": 11, "max_completion_tokens": 12, "max_output_tokens": 13, "n_predict": 10}, 10),
    ({"max_tokens": None, "max_completion_tokens": None}, 256),
    ({"max_completion_tokens": 1_000_000, "n_predict": 1_000_000}, 256),
]


@pytest.mark.parametrize(("fields", "granted"), SEVERAL)
def test_of_several_the_smallest_valid_one_leaves_alone(fields: dict[str, Any], granted: int) -> None:
    found = decided(chat(**fields))
    left = found.json.keys() & {"max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict"}
    assert len(left) == 1
    assert left <= {"max_tokens", "max_completion_tokens"}
    assert found.json[left.pop()] == granted


@pytest.mark.parametrize(("granted", "marked"), [(199, False), (200, False), (201, True)])
def test_above_the_threshold_it_is_marked_for_continuation(granted: int, marked: bool) -> None:
    found = decided(chat(max_tokens=granted))
    assert found.decision.max_tokens == granted
    assert found.decision.continuation is marked
    assert (found.headers.get("x-llm-continuation") == b"1") is marked


def test_the_threshold_comes_from_the_config() -> None:
    over = "inference_params: {max_tokens: {streaming_threshold: 10}}"
    assert decided(chat(max_tokens=11), over=over).decision.continuation is True
    assert decided(chat(max_tokens=10), over=over).decision.continuation is False


@settings(deadline=None, max_examples=60)
@given(
    asked=st.none() | st.integers(0, 2**40),
    wanted=st.none() | st.integers(1, 10_000_000),
    scenario=st.sampled_from(["general", "legal", "order_query", "recommendation"]),
    window=st.integers(1, 200_000),
    explicit=st.none() | st.integers(1, 300_000),
    minimum=st.integers(0, 64),
)
def test_nothing_exceeds_the_cap(
    *, asked: int | None, wanted: int | None, scenario: str, window: int, explicit: int | None, minimum: int
) -> None:
    over = (
        f"models: [{{name: p, match: [m], context_window: {window}, "
        f"max_output_tokens: {explicit or 'null'}, min_output_tokens: {minimum}}}]"
    )
    overrides = None if wanted is None else {Field.MAX_TOKENS: wanted}
    limit = granted_tokens(context(over=over, scenario=scenario, overrides=overrides), asked)
    cap = max(1, min(window * 65 // 100, explicit or window))
    assert limit is not None
    assert limit.tokens <= cap
    if minimum <= cap:
        assert limit.tokens >= minimum
    if asked is not None and wanted is None and asked >= minimum:
        assert limit.tokens <= asked


def test_absent_is_told_apart_from_zero() -> None:
    assert decided(chat()).changes[Field.MAX_TOKENS].before is ABSENT
    assert decided(chat(max_tokens=0)).changes[Field.MAX_TOKENS].before == 0
    assert decided(chat(max_tokens=0), CHAT).audit[-1].from_ == 0

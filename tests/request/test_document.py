"""Where fields stand in a body, what may be written there, and what leaves."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from extproc.errors import ClientFault
from extproc.model.commands import Continue, RecordDecision, Reject
from extproc.model.names import Dialect, Engine, Field
from extproc.model.values import ABSENT, Change
from extproc.request.document import Reading, Spelling, Writing, model_name
from extproc.request.formats import READERS
from extproc.request.headers import Headers
from extproc.request.json_object import parse
from extproc.request.paths import target
from tests.decide.worlds import ask, chat, decided, pools, refused, world
from tests.request.json_texts import EXAMPLES, SPELLINGS, VALUES, Member, Text, read, texts, value_of

FIELDS = {
    "temperature": Field.TEMPERATURE,
    "top_p": Field.TOP_P,
    "top_k": Field.TOP_K,
    "min_p": Field.MIN_P,
    "typ_p": Field.TYPICAL_P,
    "num_beams": Field.BEAMS,
    "beam_width": Field.BEAMS,
    "max_tokens": Field.MAX_TOKENS,
    "max_completion_tokens": Field.MAX_TOKENS,
    "max_output_tokens": Field.MAX_TOKENS,
    "n_predict": Field.MAX_TOKENS,
    "n": Field.N,
    "best_of": Field.BEST_OF,
    "stream": Field.STREAM,
    "priority": Field.PRIORITY,
}
LENGTHS = {key for key, field in FIELDS.items() if field is Field.MAX_TOKENS}

FITTING: dict[str, tuple[bytes, ...]] = {
    "temperature": (b"0", b"0.0", b"0.1000", b"0.9", b"1E2", b"2", b"null"),
    "top_p": (b"0.5", b"1.0", b"0.99", b"null"),
    "top_k": (b"40", b'"x"', b"[1]", b"null"),
    "min_p": (b"0.05",),
    "typ_p": (b"0.5", b"true"),
    "num_beams": (b"1", b"2", b"6"),
    "beam_width": (b"1", b"6.0"),
    "max_tokens": (b"5", b"1E2", b"300", b"9007199254740993", b"null", b'"x"'),
    "max_completion_tokens": (b"1", b"1000000", b"null"),
    "max_output_tokens": (b"7", b"-1"),
    "n_predict": (b"20", b"null"),
    "n": (b"1", b"64", b"4.0"),
    "best_of": (b"2", b"100"),
    "stream": (b"true", b"false", b"null"),
    "priority": (b"0", b"-5", b"{}", b"null"),
}
MESSAGES = (
    b'[{"role":"user","content":"order #12345"}]',
    b'[ {"role" : "user", "content":"a slogan"} ]',
    b'[{"role":"user","content":null}]',
    b"[]",
)

SPELLED = st.sampled_from(SPELLINGS)
NAMED = st.sampled_from([(key, value) for key, values in FITTING.items() for value in values])
UNNAMED = st.tuples(
    st.sampled_from(("seed", "user", "tools", "temperature ", "Temperature", "logit_bias", "😀", "metadata")),
    VALUES,
)
TEXT = st.tuples(st.just("messages"), st.sampled_from(MESSAGES))
MODEL = st.tuples(st.just("model"), st.sampled_from((b'"m"', b'"a-70b"', b"null", b'"\\u006d"')))
MEMBER = st.builds(
    lambda pair, spell: Member(pair[0], spell(pair[0]), pair[1]), st.one_of(NAMED, UNNAMED, TEXT, MODEL), SPELLED
)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=texts(MEMBER, max_size=7), engine=st.sampled_from((Engine.VLLM, Engine.LLAMACPP)))
def test_a_whole_request_keeps_the_bytes_of_what_no_rule_names(text: Text, engine: Engine) -> None:
    commands = ask(text.body, over=pools(engine, by_priority=True))
    answer = commands[-1]
    if isinstance(answer, Reject):
        assert answer.status == 400
        return
    record = commands[-2]
    assert isinstance(record, RecordDecision)
    assert isinstance(answer, Continue)
    sent = text.body if answer.body is None else answer.body
    named = {change.field for change in record.decision.changes}
    touched = {key for key, field in FIELDS.items() if field in named}
    found = read(sent)

    assert len({member.key for member in found}) == len(found), "no key leaves twice"
    for member in found:
        if member.key not in touched:
            assert member.value == text.last[member.key]
    untouched = [key for key in text.order if key not in touched]
    assert [member.key for member in found if member.key not in touched] == untouched
    stayed = [member.key for member in found if member.key in text.last]
    assert stayed == [key for key in text.order if key in stayed]
    if not named and not text.repeats:
        assert answer.body is None
    if not text.repeats:
        spelled = {member.key: member.spelled for member in text.members}
        for member in found:
            assert member.spelled == spelled.get(member.key, member.spelled)

    leaves = {member.key: value_of(member.value) for member in found}
    assert len(leaves.keys() & LENGTHS) == 1
    for change in record.decision.changes:
        keys = [key for key in leaves if FIELDS.get(key) is change.field]
        if change.after is ABSENT:
            assert keys == []
        else:
            assert [leaves[key] for key in keys] == [change.after] * len(keys)
            assert keys
    assert dict(answer.body_headers).get("content-length") == (
        None if answer.body is None else str(len(sent)).encode()
    )


def document(body: bytes, path: str = "/v1/chat/completions") -> Any:
    aim = target(path)
    assert aim.dialect is not None
    reading = Reading(aim, Headers(()), 100, 1000, lambda model: world().registry.profile(model).triton)
    return READERS[aim.dialect](body, reading)


def writing(engine: Engine = Engine.VLLM, over: str = "") -> Writing:
    return Writing(engine, world(over).registry.profile("m").triton)


def to(field: Field, after: Any) -> Change:
    return Change(field, ABSENT, after, "rule", "why")


WRITES: list[tuple[str, bytes, list[Change], bytes]] = [
    ("nothing", b'{"a":1}', [], b'{"a":1}'),
    ("added", b'{"a":1}', [to(Field.TEMPERATURE, 0.3)], b'{"a":1,"temperature":0.3}'),
    ("replaced", b'{"temperature":1E2,"a":1}', [to(Field.TEMPERATURE, 0.3)], b'{"temperature":0.3,"a":1}'),
    ("null_replaced", b'{"temperature":null}', [to(Field.TEMPERATURE, 0.3)], b'{"temperature":0.3}'),
    ("removed", b'{"top_k":5,"a":1}', [to(Field.TOP_K, ABSENT)], b'{"a":1}'),
    ("removed_absent", b'{"a":1}', [to(Field.TOP_K, ABSENT)], b'{"a":1}'),
    ("both_spellings_removed", b'{"typ_p":5,"a":1,"typical_p":2}', [to(Field.TYPICAL_P, ABSENT)], b'{"a":1}'),
    (
        "both_spellings_set",
        b'{"num_beams":5,"beam_width":2}',
        [to(Field.BEAMS, 1)],
        b'{"num_beams":1,"beam_width":1}',
    ),
    ("length_added", b"{}", [to(Field.MAX_TOKENS, 5)], b'{"max_tokens":5}'),
    ("length_replaced", b'{"max_completion_tokens":9}', [to(Field.MAX_TOKENS, 5)], b'{"max_completion_tokens":5}'),
    ("length_respelled", b'{"n_predict":9,"a":1}', [to(Field.MAX_TOKENS, 5)], b'{"a":1,"max_tokens":5}'),
    ("length_removed", b'{"max_tokens":9,"a":1}', [to(Field.MAX_TOKENS, ABSENT)], b'{"a":1}'),
    ("repeats_settled", b'{"a":1,"a":2}', [], b'{"a":2}'),
    ("false", b"{}", [to(Field.STREAM, False)], b'{"stream":false}'),
]


@pytest.mark.parametrize(("body", "changes", "sent"), [case[1:] for case in WRITES], ids=[c[0] for c in WRITES])
def test_write(body: bytes, changes: list[Change], sent: bytes) -> None:
    assert document(body).write(changes, writing()).body == sent


def test_an_unchanged_body_is_the_very_same_object() -> None:
    body = b'{"a":1}'
    assert document(body).write([], writing()).body is body


RESPELLS = [
    (b"{}", Engine.VLLM, False),
    (b'{"max_tokens":1}', Engine.VLLM, False),
    (b'{"max_completion_tokens":1}', Engine.VLLM, False),
    (b'{"max_completion_tokens":1}', Engine.LLAMACPP, True),
    (b'{"n_predict":1}', Engine.VLLM, True),
    (b'{"n_predict":1}', Engine.LLAMACPP, False),
    (b'{"max_output_tokens":1}', Engine.VLLM, True),
    (b'{"max_tokens":1,"max_completion_tokens":1}', Engine.VLLM, True),
    (b'{"max_tokens":1,"n_predict":null}', Engine.VLLM, True),
]


@pytest.mark.parametrize(("body", "engine", "respells"), RESPELLS)
def test_whether_the_key_alone_must_change(body: bytes, engine: Engine, respells: bool) -> None:
    assert document(body).respells(engine) is respells


PLACES = [
    ("/v1/chat/completions", Engine.VLLM, ("max_tokens", "max_completion_tokens"), "max_tokens"),
    ("/v1/chat/completions", Engine.LLAMACPP, ("max_tokens", "n_predict"), "max_tokens"),
    ("/v1/completions", Engine.VLLM, ("max_tokens",), "max_tokens"),
    ("/v1/completions", Engine.LLAMACPP, ("max_tokens", "n_predict"), "max_tokens"),
    ("/v1/responses", Engine.VLLM, ("max_output_tokens",), "max_output_tokens"),
    ("/v1/responses", Engine.LLAMACPP, ("max_output_tokens",), "max_output_tokens"),
    ("/v1/messages", Engine.VLLM, ("max_tokens",), "max_tokens"),
    ("/v1/messages", Engine.LLAMACPP, ("max_tokens",), "max_tokens"),
    ("/completion", Engine.LLAMACPP, ("n_predict",), "n_predict"),
    ("/v2/models/m/generate", Engine.TRITON, ("max_tokens",), "max_tokens"),
]
"""Path, engine, the keys that engine reads there, and the one that is used where another must go."""


@pytest.mark.parametrize(("path", "engine", "readable", "preferred"), PLACES, ids=[f"{p[1]}{p[0]}" for p in PLACES])
@pytest.mark.parametrize("key", sorted(LENGTHS))
@pytest.mark.parametrize(("asked", "granted"), [(b"40", 40), (b"1000000", 256), (b"null", 256), (None, 256)])
def test_every_key_for_every_engine(
    *,
    path: str,
    engine: Engine,
    readable: tuple[str, ...],
    preferred: str,
    key: str,
    asked: bytes | None,
    granted: int,
) -> None:
    """One key leaves, the one that engine reads, and it is capped."""
    member = b"" if asked is None else b',"' + key.encode() + b'":' + asked
    found = decided(b'{"x":1E2' + member + b"}", path, over=pools(engine))
    places = [found.json, found.json.get("parameters", {})]
    left = [(k, place[k]) for place in places for k in place if k in LENGTHS]
    expected = key if asked is not None and key in readable else preferred
    assert left == [(expected, granted)]
    assert b'"x":1E2' in found.sent


@pytest.mark.parametrize(("path", "engine", "readable", "preferred"), PLACES, ids=[f"{p[1]}{p[0]}" for p in PLACES])
def test_all_keys_at_once(path: str, engine: Engine, readable: tuple[str, ...], preferred: str) -> None:
    fields = dict.fromkeys(sorted(LENGTHS), 1_000_000) | {"max_completion_tokens": 33}
    found = decided(fields, path, over=pools(engine))
    places = [found.json, found.json.get("parameters", {})]
    assert [(k, place[k]) for place in places for k in place if k in LENGTHS] == [(preferred, 33)]
    assert preferred == readable[0]


PATHS = [
    ("/v1/chat/completions", Engine.VLLM),
    ("/v1/completions", Engine.VLLM),
    ("/v1/responses", Engine.VLLM),
    ("/v1/messages", Engine.VLLM),
    ("/completion", Engine.LLAMACPP),
    ("/v2/models/m/generate", Engine.TRITON),
]
WRONG_NUMBERS = [b'"0.7"', b"true", b"false", b"[]", b"[1]", b"{}", b"-0.1", b"-1", b"1e400", b"-1e400", b'"NaN"']
WRONG: list[tuple[str, list[bytes]]] = [
    ("temperature", WRONG_NUMBERS),
    ("top_p", WRONG_NUMBERS),
    ("num_beams", [*WRONG_NUMBERS, b"1.5"]),
    ("beam_width", [*WRONG_NUMBERS, b"1.5"]),
    ("n", [*WRONG_NUMBERS, b"1.5"]),
    ("best_of", [*WRONG_NUMBERS, b"1.5"]),
    ("stream", [b'"true"', b"0", b"1", b"[]", b"{}"]),
]


@pytest.mark.parametrize(("path", "engine"), PATHS)
@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in WRONG for value in values])
def test_a_wrong_type_is_refused_by_name(path: str, engine: Engine, key: str, value: bytes) -> None:
    status, error = refused(b'{"' + key.encode() + b'":' + value + b"}", path)
    assert (status, error["code"], error["param"]) == (400, "invalid_parameter", key)
    assert error["message"].startswith(f"Invalid '{key}': expected ")


@pytest.mark.parametrize(("path", "engine"), PATHS)
@pytest.mark.parametrize("key", [key for key, _ in WRONG])
def test_null_is_absent(path: str, engine: Engine, key: str) -> None:
    found = decided(b'{"x":1,"' + key.encode() + b'":null}', path)
    plain = decided(b'{"x":1}', path)
    assert [(c.field, c.before, c.after) for c in found.decision.changes] == [
        (c.field, c.before, c.after) for c in plain.decision.changes
    ]


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        (b"{}", ""),
        (b'{"model":null}', ""),
        (b'{"model":""}', ""),
        (b'{"model":"m"}', "m"),
        (rb'{"model":"\u006d"}', "m"),
        (b'{"model":"a","model":"b"}', "b"),
        (b'{"Model":"x","model":"y"}', "y"),
        ('{"model":"模型"}'.encode(), "模型"),
        (b'{"model":"' + b"m" * 510 + b'"}', "m" * 510),
    ],
)
def test_model_names(raw: bytes, name: str) -> None:
    assert model_name(parse(raw, max_keys=9)) == name


@pytest.mark.parametrize("raw", [b"1", b"true", b"[]", b"{}", b'["m"]', b"0.5"])
def test_a_model_is_a_string(raw: bytes) -> None:
    with pytest.raises(ClientFault) as refusal:
        model_name(parse(b'{"model":' + raw + b"}", max_keys=9))
    assert (refusal.value.status, refusal.value.param) == (400, "model")


def test_a_model_is_a_short_string() -> None:
    status, error = refused(chat() | {"model": "MARKER" * 2000})
    assert (status, error["code"], error["param"]) == (400, "invalid_model", "model")
    assert "MARKER" not in json.dumps(error)


@pytest.mark.parametrize(
    "body", [b'{"messages":[]}', b'{"model":null,"messages":[]}', b'{"model":"","messages":[]}']
)
def test_without_a_model_the_defaults_hold(body: bytes) -> None:
    assert decided(body).decision.profile == "default"


def test_of_two_spellings_the_one_that_asks_for_more_counts() -> None:
    """A cap then holds for each of them."""
    assert document(b'{"num_beams":3,"beam_width":9}').request.given[Field.BEAMS] == 9
    assert document(b'{"beam_width":9,"num_beams":3}').request.given[Field.BEAMS] == 9
    assert document(b'{"num_beams":null,"beam_width":2}').request.given[Field.BEAMS] == 2


def test_what_can_be_added() -> None:
    assert Spelling({}, {Field.TOP_P: "top_p"}, {}).insertable() == {Field.TOP_P}
    assert Spelling({}, {}, {Engine.VLLM: ("max_tokens",)}).insertable() == {Field.MAX_TOKENS}


@pytest.mark.parametrize("dialect", [d for d in Dialect if d is not Dialect.TRITON_INFER])
def test_no_format_adds_a_field_of_sampling(dialect: Dialect) -> None:
    paths = {
        Dialect.TRITON_GENERATE: "/v2/models/m/generate",
        Dialect.LLAMACPP_COMPLETION: "/completion",
        Dialect.ANTHROPIC_MESSAGES: "/v1/messages",
        Dialect.OPENAI_CHAT: "/v1/chat/completions",
        Dialect.OPENAI_COMPLETIONS: "/v1/completions",
        Dialect.OPENAI_RESPONSES: "/v1/responses",
        Dialect.OPENAI_EMBEDDINGS: "/v1/embeddings",
    }
    insertable = document(b"{}", paths[dialect]).request.insertable
    ruled = {Field.TEMPERATURE, Field.TOP_P, Field.STREAM, Field.PRIORITY, Field.MAX_TOKENS, Field.SPECULATIVE}
    assert insertable <= ruled
    assert (Field.MAX_TOKENS in insertable) == (dialect is not Dialect.OPENAI_EMBEDDINGS)

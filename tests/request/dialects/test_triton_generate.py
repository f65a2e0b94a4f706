"""Triton generate: fields at the top level or nested, and what may go into `parameters`."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from extproc.model.commands import Reject
from extproc.model.names import Tier
from extproc.request.dialects import triton_generate
from extproc.request.document import Reading
from extproc.request.headers import Headers
from extproc.request.paths import target
from tests.decide.worlds import ask, decided, refused, world
from tests.request.json_texts import EXAMPLES, SPELLINGS, VALUES, Member, Text, read, rendered, texts
from tests.request.test_document import FIELDS, FITTING

PATH = "/v2/models/m/generate"
TOP = "default_model: {triton: {generate_place: top_level}}"
OWN = """
default_model:
  triton:
    generate_place: top_level
    tensors: {max_tokens: request_output_len, temperature: heat, top_p: runtime_top_p, text: prompt}
"""

WRITES = [
    (
        "nothing_given",
        "",
        b'{"text_input":"x"}',
        b'{"text_input":"x","parameters":{"temperature":0.7,"max_tokens":256}}',
    ),
    ("at_top", TOP, b'{"text_input":"x"}', b'{"text_input":"x","temperature":0.7,"max_tokens":256}'),
    ("empty_parameters", "", b'{"parameters":{}}', b'{"parameters":{"temperature":0.7,"max_tokens":256}}'),
    (
        "spaced_parameters",
        "",
        b'{"parameters" : { "x":1E2 , "temperature" : 0.50 } , "y":1}',
        b'{"parameters" : { "x":1E2 , "temperature" : 0.50,"max_tokens":256 } , "y":1}',
    ),
    (
        "capped_where_it_stands",
        "",
        b'{"max_tokens":999,"temperature":1}',
        b'{"max_tokens":256,"temperature":1}',
    ),
    (
        "capped_where_it_stands_nested",
        TOP,
        b'{"parameters":{"max_tokens":999,"temperature":1}}',
        b'{"parameters":{"max_tokens":256,"temperature":1}}',
    ),
    (
        "both_places",
        "",
        b'{"max_tokens":5,"parameters":{"max_tokens":99999,"a":1},"temperature":1}',
        b'{"max_tokens":5,"parameters":{"a":1},"temperature":1}',
    ),
    (
        "foreign_key_respelled",
        "",
        b'{"parameters":{"max_completion_tokens":99999,"temperature":1}}',
        b'{"parameters":{"temperature":1,"max_tokens":256}}',
    ),
    (
        "foreign_key_moves",
        "",
        b'{"a":1,"n_predict":9,"parameters":{"temperature":1}}',
        b'{"a":1,"parameters":{"temperature":1,"max_tokens":9}}',
    ),
    (
        "null_replaced",
        "",
        b'{"parameters":{"max_tokens":null,"temperature":null}}',
        b'{"parameters":{"max_tokens":256,"temperature":0.7}}',
    ),
    (
        "greedy",
        "",
        b'{"top_k":1,"parameters":{"temperature":0,"top_k":50,"max_tokens":5}}',
        b'{"parameters":{"temperature":0,"max_tokens":5,"top_p":1.0}}',
    ),
    (
        "repeated_parameters",
        "",
        b'{"parameters":{"max_tokens":1},"parameters":{"max_tokens":9999,"temperature":1}}',
        b'{"parameters":{"max_tokens":256,"temperature":1}}',
    ),
    (
        "repeated_inside",
        "",
        b'{"parameters":{"max_tokens":1,"max_tokens":9,"temperature":1},"a":1}',
        b'{"parameters":{"max_tokens":9,"temperature":1},"a":1}',
    ),
]


@pytest.mark.parametrize(("over", "body", "sent"), [case[1:] for case in WRITES], ids=[case[0] for case in WRITES])
@pytest.mark.parametrize("verb", ["generate", "generate_stream"])
def test_write(verb: str, over: str, body: bytes, sent: bytes) -> None:
    assert decided(body, f"/v2/models/m/{verb}", over=over).sent == sent


def test_a_strict_request_byte_by_byte() -> None:
    body = b'{"text_input":"order #12345","parameters":{"a":-0.0,\n"temperature":1.50 ,"b":[1E2]},"stream":true}'
    sent = body.replace(b"1.50 ", b"0.3 ").replace(b"[1E2]}", b'[1E2],"top_p":0.85,"max_tokens":120}')
    assert decided(body, PATH).sent == sent


def test_no_stream_is_ever_added() -> None:
    over = "inference_params: {lowest_latency: {models: [m]}}"
    found = decided(b'{"text_input":"x"}', PATH, over=over)
    assert found.json == {"text_input": "x", "parameters": {"temperature": 0, "top_p": 1.0, "max_tokens": 256}}


@pytest.mark.parametrize("odd", [b"null", b"[]", b'"x"', b"5", b"true", b"[{}]"])
def test_parameters_are_an_object(odd: bytes) -> None:
    status, error = refused(b'{"parameters":' + odd + b"}", PATH)
    assert (status, error["param"]) == (400, "parameters")


def test_the_bound_of_keys_holds_inside_too() -> None:
    body = json.dumps({"parameters": {str(i): i for i in range(20)}})
    status, error = refused(body.encode(), PATH, over="limits: {max_keys: 16}")
    assert (status, error["code"]) == (400, "too_many_keys")
    assert error["message"] == "The 'parameters' object has more than 16 keys."


@pytest.mark.parametrize("value", ["order #12345", ["order #12345"], ["x", "order #12345"]])
def test_text(value: object) -> None:
    assert decided({"text_input": value}, PATH).decision.tier is Tier.STRICT


def test_the_model_is_the_paths() -> None:
    body = {"text_input": "x", "model": 5}
    assert decided(body, "/v2/models/a-70b/generate").decision.profile == "llama-70b"
    assert decided(body, "/v2/models/a%2D70b/versions/3/generate").decision.profile == "llama-70b"


QUOTED = [
    (
        "capped_inside",
        rb"""{"sampling_parameters":"{\"temperature\": 5E-1, \"max_tokens\": 9999, \"x\": 1E2}"}""",
        rb"""{"sampling_parameters":"{\"temperature\": 5E-1, \"max_tokens\": 256, \"x\": 1E2}"}""",
    ),
    (
        "unchanged",
        rb"""{"sampling_parameters" : "{\u0022temperature\":0.50,\"max_tokens\":5,\"s\":\"\/\"}"}""",
        rb"""{"sampling_parameters" : "{\u0022temperature\":0.50,\"max_tokens\":5,\"s\":\"\/\"}"}""",
    ),
    (
        "added_inside",
        b'{"parameters":{"a":1},"sampling_parameters":"{}"}',
        rb'{"parameters":{"a":1},"sampling_parameters":"{\"temperature\":0.7,\"max_tokens\":256}"}',
    ),
    (
        "moved_inside",
        b'{"parameters":{"temperature":0.5,"max_tokens":5},"top_p":0.9,"sampling_parameters":"{}"}',
        rb'{"parameters":{"temperature":0.5},"top_p":0.9,'
        rb'"sampling_parameters":"{\"temperature\":0.5,\"top_p\":0.9,\"max_tokens\":5}"}',
    ),
    (
        "smallest_stays_inside",
        rb'{"max_tokens":5,"sampling_parameters":"{\"temperature\":0,\"top_p\":1.0,\"max_tokens\":99999}"}',
        rb'{"sampling_parameters":"{\"temperature\":0,\"top_p\":1.0,\"max_tokens\":5}"}',
    ),
    (
        "repeated_inside",
        rb'{"sampling_parameters":"{\"temperature\":0.5,\"max_tokens\":1,\"max_tokens\":5}"}',
        rb'{"sampling_parameters":"{\"temperature\":0.5,\"max_tokens\":5}"}',
    ),
    (
        "null",
        b'{"sampling_parameters":null}',
        b'{"sampling_parameters":null,"parameters":{"temperature":0.7,"max_tokens":256}}',
    ),
]


@pytest.mark.parametrize(("body", "sent"), [case[1:] for case in QUOTED], ids=[case[0] for case in QUOTED])
def test_sampling_parameters(body: bytes, sent: bytes) -> None:
    assert decided(body, PATH).sent == sent


@pytest.mark.parametrize("odd", [b'"x"', b'""', b'"[]"', b'"null"', b'["{}"]', b"{}", b"5", b"true"])
def test_sampling_parameters_are_an_object_in_a_string(odd: bytes) -> None:
    status, error = refused(b'{"sampling_parameters":' + odd + b"}", PATH)
    assert (status, error["param"]) == (400, "sampling_parameters")


def test_sampling_parameters_stand_at_the_top_alone() -> None:
    status, error = refused(b'{"parameters":{"sampling_parameters":"{}"}}', PATH)
    assert (status, error["param"]) == (400, "sampling_parameters")


def test_the_signature_tells_whether_sampling_parameters_are_there() -> None:
    path = target(PATH)
    assert path is not None
    rules = world().registry.profile("m").triton
    reading = Reading(path, Headers([]), max_keys=50, max_chars=100, triton=lambda _: rules)
    bodies = (b"{}", b'{"sampling_parameters":"{}"}', rb'{"sampling_parameters":"{\"top_p\":1}"}', b'{"top_p":1}')
    assert len({triton_generate.read(body, reading).signature for body in bodies}) == 4


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        (b'{"text_input":"x"}', b'{"text_input":"x","heat":0.7,"request_output_len":256}'),
        (b'{"heat":0.5,"request_output_len":9999}', b'{"heat":0.5,"request_output_len":256}'),
        (b'{"heat":0.5,"max_tokens":9,"request_output_len":9999}', b'{"heat":0.5,"request_output_len":9}'),
        (b'{"heat":0.5,"parameters":{"max_tokens":9}}', b'{"heat":0.5,"parameters":{},"request_output_len":9}'),
    ],
)
def test_the_profiles_tensor_names_are_keys(body: bytes, sent: bytes) -> None:
    assert decided(body, PATH, over=OWN).sent == sent


def test_the_text_stands_where_the_profile_says() -> None:
    assert decided({"prompt": "order #12345"}, PATH, over=OWN).decision.tier is Tier.STRICT


SPELLED = st.sampled_from(SPELLINGS)
NAMED = st.sampled_from([(key, value) for key, values in FITTING.items() for value in values])
UNNAMED = st.tuples(st.sampled_from(("a", "seed", "stop", "😀", "text_input")), VALUES)
MEMBER = st.builds(lambda pair, spell: Member(pair[0], spell(pair[0]), pair[1]), st.one_of(NAMED, UNNAMED), SPELLED)


@settings(max_examples=EXAMPLES // 5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(outer=texts(MEMBER, max_size=4), inner=texts(MEMBER, max_size=5), at=st.integers(0, 4), top=st.booleans())
def test_both_places_keep_the_bytes_of_what_no_rule_names(outer: Text, inner: Text, at: int, top: bool) -> None:
    found = list(outer.members)
    found.insert(at, Member("parameters", b'"parameters"', inner.body.strip()))
    text = rendered(found, [b"", b" ", b"\n"])
    commands = ask(text.body, PATH, over=TOP if top else "")
    answer = commands[-1]
    if isinstance(answer, Reject):
        assert answer.status == 400
        return
    sent = getattr(answer, "body", None) or text.body
    root = read(sent)
    nested = read(next(member.value for member in root if member.key == "parameters"))
    for before, after in ((text, root), (inner, nested)):
        assert len({member.key for member in after}) == len(after)
        kept = [m for m in after if m.key not in FIELDS and m.key != "parameters"]
        assert [m.key for m in kept] == [k for k in before.order if k not in FIELDS and k != "parameters"]
        assert all(member.value == before.last[member.key] for member in kept)
    clients = {member.value for member in inner.members}
    for member in nested:
        assert member.value in clients or member.value[:1] not in b"[{n", "only scalars are added"

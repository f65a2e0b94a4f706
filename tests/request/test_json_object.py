"""An object whose values keep their bytes, under edits of every kind."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from extproc.errors import ClientFault
from extproc.model.values import ABSENT
from extproc.request.json_object import Edit, encode, number, parse, scalar
from tests.request.json_texts import EXAMPLES, Text, members, read, texts

KEYS = ("a", "b", "temperature", "max_tokens", "", "é", "😀", 'q"\\/', "\u2028")
KEY = st.one_of(st.sampled_from(KEYS), st.text(max_size=3))
EDITS = st.dictionaries(
    st.one_of(st.sampled_from(KEYS), st.just("new")),
    st.sampled_from((b"0.5", b'"new"', b"{}", b"null", ABSENT, ABSENT)),
    max_size=4,
)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=texts(members(KEY)), edits=EDITS)
def test_only_named_members_change(text: Text, edits: dict[str, Edit]) -> None:
    parsed = parse(text.body, max_keys=100)
    assert parsed.rewritten == text.repeats
    if not text.repeats:
        assert parsed.body is text.body
    for key in text.order:
        assert key in parsed
        assert parsed.raw(key) == text.last[key]

    found = read(parsed.edited(edits))

    kept = [key for key in text.order if edits.get(key) is not ABSENT]
    added = [key for key, edit in edits.items() if edit is not ABSENT and key not in text.last]
    assert [member.key for member in found] == kept + added
    for member in found:
        assert member.value == edits.get(member.key, text.last.get(member.key))
    if not text.repeats:
        spelled = {member.key: member.spelled for member in text.members}
        assert [m.spelled for m in found[: len(kept)]] == [spelled[key] for key in kept]


@settings(max_examples=EXAMPLES // 50 + 20, deadline=None)
@given(text=texts(members(KEY)))
def test_without_edits_it_is_the_same_object(text: Text) -> None:
    parsed = parse(text.body, max_keys=100)
    result = parsed.edited({})
    if not text.repeats:
        assert result is text.body
    assert json.loads(result) == json.loads(text.body)
    assert list(json.loads(result)) == text.order


BODY = b' { "a" : 1E2 ,\n"b":{"c":[1, 2]} , "d" : "x" }\r\n'

EDITED: list[tuple[str, dict[str, Edit], bytes]] = [
    ("nothing", {}, BODY),
    ("first", {"a": b"5"}, b' { "a" : 5 ,\n"b":{"c":[1, 2]} , "d" : "x" }\r\n'),
    ("middle", {"b": b"null"}, b' { "a" : 1E2 ,\n"b":null , "d" : "x" }\r\n'),
    ("last", {"d": b"true"}, b' { "a" : 1E2 ,\n"b":{"c":[1, 2]} , "d" : true }\r\n'),
    ("all", {"d": b"3", "a": b"1", "b": b"2"}, b' { "a" : 1 ,\n"b":2 , "d" : 3 }\r\n'),
    ("added", {"e": b"1"}, b' { "a" : 1E2 ,\n"b":{"c":[1, 2]} , "d" : "x","e":1 }\r\n'),
    ("two_added", {"f": b"1", "e": b"2"}, b' { "a" : 1E2 ,\n"b":{"c":[1, 2]} , "d" : "x","f":1,"e":2 }\r\n'),
    ("first_removed", {"a": ABSENT}, b' { "b":{"c":[1, 2]} , "d" : "x" }\r\n'),
    ("middle_removed", {"b": ABSENT}, b' { "a" : 1E2 , "d" : "x" }\r\n'),
    ("last_removed", {"d": ABSENT}, b' { "a" : 1E2 ,\n"b":{"c":[1, 2]} }\r\n'),
    ("ends_removed", {"a": ABSENT, "d": ABSENT}, b' { "b":{"c":[1, 2]} }\r\n'),
    ("all_removed", {"a": ABSENT, "b": ABSENT, "d": ABSENT}, b" {  }\r\n"),
    ("all_replaced", {"a": ABSENT, "b": ABSENT, "d": ABSENT, "e": b"1"}, b' { "e":1 }\r\n'),
    ("removed_and_changed", {"a": ABSENT, "d": b"1"}, b' { "b":{"c":[1, 2]} , "d" : 1 }\r\n'),
    ("removed_and_added", {"d": ABSENT, "e": b"1"}, b' { "a" : 1E2 ,\n"b":{"c":[1, 2]},"e":1 }\r\n'),
    ("absent_removed", {"z": ABSENT}, BODY),
]


@pytest.mark.parametrize(("edits", "result"), [case[1:] for case in EDITED], ids=[case[0] for case in EDITED])
def test_edits_in_every_position(edits: dict[str, Edit], result: bytes) -> None:
    assert parse(BODY, max_keys=9).edited(edits) == result


@pytest.mark.parametrize(
    ("empty", "result"),
    [(b"{}", b'{"a":1}'), (b"{ }", b'{"a":1 }'), (b" \n{\t}\r\n", b' \n{"a":1\t}\r\n')],
)
def test_adding_to_an_empty_object(empty: bytes, result: bytes) -> None:
    assert parse(empty, max_keys=0).edited({"a": b"1"}) == result
    assert parse(empty, max_keys=0).edited({"a": ABSENT}) == empty


def test_an_added_key_is_escaped() -> None:
    assert json.loads(parse(b"{}", max_keys=0).edited({'q"\n': b"1"})) == {'q"\n': 1}


REPEATED: list[tuple[bytes, bytes]] = [
    (b'{"a":1,"a":2}', b'{"a":2}'),
    (b'{"a":1,"a":1}', b'{"a":1}'),
    (b'{"a":12,"a":1}', b'{"a":1}'),
    (b'{"a":1,"a":12}', b'{"a":12}'),
    (b'{"a":1,"b":2,"a":3}', b'{"a":3,"b":2}'),
    (b'{"a":1,"b":1E2,"a":1}', b'{"a":1,"b":1E2}'),
    (b'{"a":1,"\\u0061":2}', b'{"a":2}'),
    (b'{"\\u0061":1,"a":2}', b'{"a":2}'),
    (b'{"a":{"a":1},"a":{"a":1}}', b'{"a":{"a":1}}'),
    (b'{"a":"b\\"a\\":1","a" : "\\u0062"}', b'{"a":"\\u0062"}'),
    (b'{"b":0,"a":1,"a":1,"b":0}', b'{"b":0,"a":1}'),
    ('{"\\ud83d\\ude00":1,"😀":-0.0}'.encode(), '{"😀":-0.0}'.encode()),
]


@pytest.mark.parametrize(("body", "settled"), REPEATED)
def test_a_repeated_key_is_settled_last_one_winning(body: bytes, settled: bytes) -> None:
    parsed = parse(body, max_keys=9)
    assert parsed.rewritten
    assert parsed.edited({}) == settled


def test_keys_that_differ_in_case_are_two() -> None:
    body = b'{"Model":"x","model":"y"}'
    parsed = parse(body, max_keys=9)
    assert parsed.edited({}) is body
    assert (parsed.raw("Model"), parsed.raw("model"), parsed.raw("MODEL")) == (b'"x"', b'"y"', None)


def test_an_escaped_key_keeps_its_spelling() -> None:
    body = b'{"m\\u0061x_tokens" : 99999, "x":1}'
    assert parse(body, max_keys=9).edited({"max_tokens": b"5"}) == b'{"m\\u0061x_tokens" : 5, "x":1}'


def test_a_repeated_nested_key_is_nobodys_business() -> None:
    body = b'{"x":{"a":1,"a":2}}'
    assert parse(body, max_keys=9).edited({}) is body


MARKER = "MARKER"
MALFORMED: list[tuple[str, bytes]] = [
    ("empty", b""),
    ("blank", b" \n\t"),
    ("array", b'["MARKER"]'),
    ("string", b'"MARKER"'),
    ("number", b"1"),
    ("null", b"null"),
    ("truncated", b'{"a":"MARKER'),
    ("no_value", b'{"MARKER":'),
    ("no_colon", b'{"MARKER" 1}'),
    ("trailing_comma", b'{"a":"MARKER",}'),
    ("leading_comma", b'{,"a":"MARKER"}'),
    ("two_commas", b'{"a":"MARKER",,"b":1}'),
    ("nan", b'{"a":NaN,"b":"MARKER"}'),
    ("infinity", b'{"a":-Infinity,"b":"MARKER"}'),
    ("single_quotes", b"{'a':'MARKER'}"),
    ("bare_key", b'{MARKER:"MARKER"}'),
    ("comment", b'{/*MARKER*/"a":1}'),
    ("byte_order_mark", b'\xef\xbb\xbf{"a":"MARKER"}'),
    ("utf16", '{"a":"MARKER"}'.encode("utf-16")),
    ("truncated_utf8", b'{"a":"MARKER\xe4\xb8"}'),
    ("bad_utf8", b'{"a":"MARKER\xff"}'),
    ("overlong_utf8", b'{"a":"MARKER\xc0\xaf"}'),
    ("surrogate_in_utf8", b'{"a":"MARKER\xed\xa0\x80"}'),
    ("bad_utf8_key", b'{"MARKER\xff":1}'),
    ("bad_escape", b'{"a":"MARKER\\q"}'),
    ("lone_surrogate", b'{"a":"MARKER\\ud800"}'),
    ("control_character", b'{"a":"MARKER\x01"}'),
    ("newline_in_string", b'{"a":"MARKER\n"}'),
    ("trailing_garbage", b'{"a":"MARKER"}MARKER'),
    ("two_objects", b'{"a":"MARKER"}{"b":1}'),
    ("leading_zero", b'{"a":01,"b":"MARKER"}'),
    ("plus", b'{"a":+1,"b":"MARKER"}'),
    ("no_fraction", b'{"a":1.,"b":"MARKER"}'),
    ("no_exponent", b'{"a":1e,"b":"MARKER"}'),
    ("hex", b'{"a":0x1,"b":"MARKER"}'),
    ("bad_word", b'{"a":trueMARKER}'),
    ("wrong_bracket", b'{"a":["MARKER"}'),
    ("deep_array", b'{"MARKER":' + b"[" * 10_000 + b"]" * 10_000 + b"}"),
    ("deep_object", b'{"MARKER":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b"}"),
    ("deep_unclosed", b'{"MARKER":' + b"[" * 10_000),
    ("deep_at_top", b"[" * 10_000 + b"]" * 10_000),
    ("key_only", b'{"MARKER"}'),
    ("number_key", b'{1:"MARKER"}'),
    ("nul", b'{"a":"MARKER"}\x00'),
]


@pytest.mark.parametrize("body", [case[1] for case in MALFORMED], ids=[case[0] for case in MALFORMED])
def test_malformed(body: bytes) -> None:
    with pytest.raises(ClientFault) as refusal:
        parse(body, max_keys=100)
    fault = refusal.value
    assert (fault.status, fault.reason, fault.param) == (400, "invalid_json", None)
    assert fault.message.startswith("The body is not valid JSON: ")
    assert MARKER not in fault.message
    assert len(fault.message) < 120


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "it is empty"),
        (b"  ", "it is empty"),
        (b"\xef\xbb\xbf{}", "it starts with a byte-order mark"),
        (b"[]", "not a JSON object"),
        (b'{"a":"\xff"}', "not UTF-8 at byte 6"),
        (b'{"a":' + b"[" * 10_000 + b"]" * 10_000 + b"}", "nested too deeply"),
        (b'{"a":1', "Input data was truncated"),
        (b'{"a":1,}', "trailing comma in object (byte 7)"),
    ],
)
def test_the_message_says_what_and_where(body: bytes, why: str) -> None:
    with pytest.raises(ClientFault) as refusal:
        parse(body, max_keys=100, what="'parameters' object")
    assert refusal.value.message == f"The 'parameters' object is not valid JSON: {why}."


def test_too_many_keys() -> None:
    body = json.dumps({str(i): i for i in range(11)}).encode()
    assert len(parse(body, max_keys=11).values) == 11
    with pytest.raises(ClientFault) as refusal:
        parse(body, max_keys=10)
    assert (refusal.value.status, refusal.value.reason) == (400, "too_many_keys")


def test_a_large_body_is_read_in_linear_time() -> None:
    """100,000 repeats of one key and 100,000 keys: seconds would mean squares."""
    repeated = b"{" + b",".join(b'"a":%d' % i for i in range(100_000)) + b"}"
    assert parse(repeated, max_keys=10).edited({}) == b'{"a":99999}'
    wide = b"{" + b",".join(b'"%d":%d' % (i, i) for i in range(100_000)) + b"}"
    edited = parse(wide, max_keys=100_000).edited({"7": ABSENT, "99999": b"0"})
    assert edited.endswith(b'"99998":99998,"99999":0}')


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b'"x"', "x"),
        (rb'"\ud83d\ude00"', "😀"),
        (b'""', ""),
        (b"true", True),
        (b"false", False),
        (b"null", None),
        (b"0", 0),
        (b"-7", -7),
        (b"0.5", 0.5),
        (b"1E2", 100),
        (b"1.0", 1),
        (b"-1.50", -1.5),
    ],
)
def test_scalars(raw: bytes, value: Any) -> None:
    assert scalar(raw) == value
    assert type(scalar(raw)) is type(value)


@pytest.mark.parametrize("raw", [b"[]", b"{}", b"[1]", b'{"a":1}'])
def test_no_scalars(raw: bytes) -> None:
    with pytest.raises(ValueError, match="not a scalar"):
        scalar(raw)


@pytest.mark.parametrize(
    ("raw", "value", "kind"),
    [
        (b"0", 0, int),
        (b"-0", 0, int),
        (b"123456789012345", 123456789012345, int),
        (b"9007199254740993", 9007199254740992.0, float),
        (b"1e14", 10**14, int),
        (b"1e15", 1e15, float),
        (b"2.50", 2.5, float),
        (b"100e-2", 1, int),
        (b"1" + b"0" * 5000, math.inf, float),
        (b"1e400", math.inf, float),
        (b"-1e400", -math.inf, float),
        (b"1e-400", 0, int),
    ],
)
def test_numbers(raw: bytes, value: float, kind: type) -> None:
    assert number(raw) == value
    assert type(number(raw)) is kind


def test_minus_zero_stays_what_it_is() -> None:
    assert math.copysign(1, number(b"-0.0")) == -1


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        (1, b"1"),
        (0.3, b"0.3"),
        (1.0, b"1.0"),
        (True, b"true"),
        (False, b"false"),
        ('a"b', b'"a\\"b"'),
        (-10, b"-10"),
    ],
)
def test_encode(value: Any, raw: bytes) -> None:
    assert encode(value) == raw


@pytest.mark.parametrize("text", ["\\ud83d", "a \\ud83d b", "\\ude00", "\\ud83d\\ud83d\\ude00", "\\ud83dx\\ude00"])
def test_half_a_character_is_named_as_such(text: str) -> None:
    with pytest.raises(ClientFault, match="half a character"):
        parse(b'{"a":"%b"}' % text.encode(), max_keys=4)


def test_a_whole_one_is_none_of_it() -> None:
    with pytest.raises(ClientFault, match=r"valid JSON: (?!.*half a character)"):
        parse(b'{"a":"\\ud83d\\ude00', max_keys=4)

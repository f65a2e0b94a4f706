"""The user's text in each shape a request may have."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.errors import ClientFault
from extproc.model.names import Tier
from extproc.request import text
from tests.decide.worlds import decided


def raw(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


MESSAGES: list[tuple[str, Any, str]] = [
    ("one", [user("a")], "a"),
    ("the_last_user_turn", [user("a"), {"role": "assistant", "content": "b"}, user("c")], "c"),
    ("assistant_last", [user("a"), {"role": "assistant", "content": "b"}], "a"),
    ("tool_last", [user("a"), {"role": "tool", "content": "b", "tool_call_id": "1"}], "a"),
    ("only_system", [{"role": "system", "content": "s"}], ""),
    ("none", [], ""),
    ("null_content", [user(None)], ""),
    ("tool_calls", [user("a"), {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}], "a"),
    ("text_parts", [user([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])], "a\nb"),
    ("response_parts", [user([{"type": "input_text", "text": "a"}])], "a"),
    ("only_images", [user([{"type": "image_url", "image_url": {"url": "data:"}}])], ""),
    ("image_and_text", [user([{"type": "image_url", "image_url": {}}, {"type": "text", "text": "a"}])], "\na"),
    ("odd_text", [user([{"type": "text", "text": 5}, {"type": "text", "text": "a"}])], "a"),
    ("string_parts", [user(["a", {"type": "text", "text": "b"}])], "a\nb"),
    ("no_content", [{"role": "user"}], ""),
    ("number_content", [user(5)], ""),
    ("object_content", [user({"text": "a"})], ""),
    ("empty_list", [user([])], ""),
    ("other_language", [user("我的订单")], "我的订单"),
    ("no_role", [{"content": "a"}], ""),
]


@pytest.mark.parametrize(("messages", "expected"), [case[1:] for case in MESSAGES], ids=[c[0] for c in MESSAGES])
def test_messages(messages: Any, expected: str) -> None:
    found = text.of_messages(raw(messages), 100)
    assert found.strip() == expected.strip()


@pytest.mark.parametrize(
    "odd", [b"null", b"5", b'"a"', b"{}", b"[1]", b"[null]", b'["a"]', b'[{"role":5}]', b"[[]]"]
)
def test_messages_of_odd_shapes_have_no_text(odd: bytes) -> None:
    assert text.of_messages(odd, 100) == ""


def test_no_messages() -> None:
    assert text.of_messages(None, 100) == ""
    assert text.of_prompt(None, 100) == ""


PROMPTS: list[tuple[str, Any, str]] = [
    ("string", "a", "a"),
    ("strings", ["a", "b"], "a\nb"),
    ("token_ids", [1, 2, 3], ""),
    ("lists_of_token_ids", [[1], [2]], ""),
    ("mixed", ["a", 1, [2], {"x": 1}, "b"], "a\nb"),
    ("empty", "", ""),
    ("null", None, ""),
    ("number", 5, ""),
    ("object", {"x": "a"}, ""),
]


@pytest.mark.parametrize(("prompt", "expected"), [case[1:] for case in PROMPTS], ids=[c[0] for c in PROMPTS])
def test_prompts(prompt: Any, expected: str) -> None:
    assert text.of_prompt(raw(prompt), 100) == expected


def test_escapes_are_read() -> None:
    assert text.of_prompt(rb'"\ud83d\ude00\u4e2d\n"', 100) == "😀中\n"


@pytest.mark.parametrize(
    ("given_text", "most", "expected"),
    [("abcdef", 6, "abcdef"), ("abcdefg", 6, "abc\nefg"), ("abcdefgh", 5, "ab\ngh"), ("", 5, "")],
)
def test_long_text_counts_with_its_two_ends(given_text: str, most: int, expected: str) -> None:
    assert text.bounded(given_text, most) == expected


@settings(deadline=None)
@given(st.text(max_size=200), st.integers(2, 100))
def test_bounded_is_bounded(given_text: str, most: int) -> None:
    found = text.bounded(given_text, most)
    assert len(found) <= most + 1
    assert found.startswith(given_text[: most // 2])
    assert found.endswith(given_text[-(most // 2) :])


CHAT_BODIES: list[tuple[str, Any, Tier]] = [
    ("null_with_tool_calls", [{"role": "assistant", "content": None, "tool_calls": []}], Tier.NORMAL),
    ("only_images", [user([{"type": "image_url", "image_url": {"url": "u"}}])], Tier.NORMAL),
    ("only_system", [{"role": "system", "content": "order #12345"}], Tier.NORMAL),
    ("empty", [], Tier.NORMAL),
    ("null", None, Tier.NORMAL),
    ("a_number", 5, Tier.NORMAL),
    ("long_normal", [user("word " * 20_000)], Tier.NORMAL),
    ("long_strict_first", [user("order #12345" + " word" * 20_000)], Tier.STRICT),
    ("long_strict_last", [user("word " * 20_000 + "order #12345")], Tier.STRICT),
    ("long_and_strict_in_parts", [user([{"type": "text", "text": "order #12345"}])], Tier.STRICT),
    ("other_language", [user("给咖啡店写一句标语")], Tier.CREATIVE),
    ("right_to_left", [user("مرحبا بالعالم")], Tier.NORMAL),
    ("emoji", [user("🎉" * 1000)], Tier.NORMAL),
    ("nul", [user("\x00\x01\x7f")], Tier.NORMAL),
    ("noncharacters", [user("\ufffe\uffff\U0010ffff")], Tier.NORMAL),
]


@pytest.mark.parametrize(("messages", "tier"), [case[1:] for case in CHAT_BODIES], ids=[c[0] for c in CHAT_BODIES])
def test_always_some_tier(messages: Any, tier: Tier) -> None:
    body = raw({"model": "m", "messages": messages})
    started = time.thread_time()
    assert decided(body).decision.tier is tier
    assert time.thread_time() - started < 1  # CPU


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [user("order #12345")]}),
        ("/v1/completions", {"prompt": "order #12345"}),
        ("/v1/completions", {"prompt": ["x", "order #12345"]}),
        ("/v1/responses", {"input": "order #12345"}),
        ("/v1/responses", {"input": [user([{"type": "input_text", "text": "order #12345"}])]}),
        ("/v1/responses", {"instructions": "slogan", "input": "order #12345"}),
        ("/v1/embeddings", {"input": "order #12345"}),
        ("/v1/embeddings", {"input": ["order #12345"]}),
        ("/v1/messages", {"system": "slogan", "messages": [user("order #12345")]}),
        ("/v1/messages", {"messages": [user([{"type": "text", "text": "order #12345"}])]}),
        ("/completion", {"prompt": "order #12345"}),
        ("/completions", {"prompt": "order #12345"}),
        ("/v2/models/m/generate", {"text_input": "order #12345"}),
        ("/v2/models/m/generate_stream", {"text_input": ["order #12345"]}),
        (
            "/v2/models/m/infer",
            {"inputs": [{"name": "text_input", "shape": [1], "datatype": "BYTES", "data": ["order #12345"]}]},
        ),
    ],
)
def test_every_format_is_read(path: str, body: dict[str, Any]) -> None:
    found = decided(body, path).decision
    assert (found.tier, found.scenario, found.rule) == (Tier.STRICT, "order_query", "order_number")


@pytest.mark.parametrize(
    "raw",
    [
        b"[" + b"[]," * 300_000 + b"{}]",
        b"[1," + b'{"a":[]},' * 300_000 + b"1]",
        b"[" + b'"a",' * 300_000 + b'"a"]',
        b"[" + b"1," * 1_100_000 + b"1]",
    ],
    ids=["lists", "objects", "strings", "numbers"],
)
def test_lists_that_take_too_long_are_refused(raw: bytes) -> None:
    """Others wait while one body is read."""
    with pytest.raises(ClientFault, match="more than 200000 items"):
        text.of_prompt(raw, 100)
    with pytest.raises(ClientFault, match="more than 200000 items"):
        text.of_messages(raw, 100)


def test_a_long_text_is_no_list() -> None:
    said = "well, " * 2_000_000
    raw = msgspec.json.encode([{"role": "user", "content": said}])
    assert text.of_prompt(msgspec.json.encode(said), 100).startswith("well, ")
    assert text.of_messages(raw, 100).startswith("well, ")


def test_a_turn_without_text_does_not_hide_the_one_before() -> None:
    turns = [{"role": "User", "content": "order #1"}, {"role": "user", "content": " "}]
    assert text.of_messages(msgspec.json.encode(turns), 100) == "order #1"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("order #1", "order #1"),
        ("ｏｒｄｅｒ #1", "order #1"),
        ("or\u200bder\u00ad #1", "order #1"),
        ("𝐨𝐫𝐝𝐞𝐫 #1", "order #1"),
        ("订单号，１", "订单号，１"),
    ],
)
def test_text_is_read_as_a_person_reads_it(written: str, read: str) -> None:
    assert text.plain(written) == read

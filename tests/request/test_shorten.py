"""A prompt cut for a light model: the end of the conversation and the system message, whatever the format."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.model.names import Dialect
from extproc.request.json_object import parse
from extproc.request.shorten import Cut, cut, head, tail

CHAT, ANTHROPIC = Dialect.OPENAI_CHAT, Dialect.ANTHROPIC_MESSAGES


def cut_of(body: Any, dialect: Dialect = CHAT, *, tokens: int = 20, bytes_per_token: float = 2.0) -> Cut:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return cut(parse(raw, max_keys=100), dialect, tokens=tokens, bytes_per_token=bytes_per_token)


def edited(body: Any, dialect: Dialect = CHAT, **given: Any) -> dict[str, Any]:
    return {key: json.loads(raw) for key, raw in cut_of(body, dialect, **given).edits.items()}


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_a_short_one_is_left_alone() -> None:
    found = cut_of({"messages": [user("0123456789")]})
    assert (found.edits, found.before, found.after) == ({}, 5, 5)


def test_one_long_message_keeps_its_end() -> None:
    found = cut_of({"messages": [user("x" * 100 + "the question")]})
    (message,) = json.loads(found.edits["messages"])
    assert (
        message["role"] == "user" and message["content"].endswith("the question") and len(message["content"]) == 40
    )
    assert (found.before, found.after) == (56, 20)


def test_the_last_messages_that_fit_and_the_end_of_the_one_that_does_not() -> None:
    turns = [user("a" * 30), {"role": "assistant", "content": "b" * 30}, user("c" * 10)]
    kept = edited({"messages": turns})["messages"]
    assert [turn["content"] for turn in kept] == ["c" * 10], "an answer without its question begins nothing"
    turns[1] = {"role": "assistant", "content": "b" * 5}
    kept = edited({"messages": turns})["messages"]
    assert [turn["content"] for turn in kept] == ["a" * 25, "b" * 5, "c" * 10]


def test_the_system_message_stays_and_is_cut_to_half() -> None:
    turns = [{"role": "system", "content": "s" * 100}, user("u" * 100)]
    kept = edited({"messages": turns})["messages"]
    assert [(turn["role"], turn["content"]) for turn in kept] == [("system", "s" * 20), ("user", "u" * 20)]
    turns[0]["content"] = "short"
    assert edited({"messages": turns})["messages"][0] == turns[0]


def test_a_tools_answer_without_its_call_goes() -> None:
    turns = [user("q" * 50), {"role": "assistant", "content": None, "tool_calls": [1] * 20}]
    turns += [{"role": "tool", "content": "r" * 10}, user("and now?")]
    kept = edited({"messages": turns})["messages"]
    assert [turn["role"] for turn in kept] == ["user"]


def test_parts_are_text_when_they_are_cut() -> None:
    parts = [{"type": "text", "text": "t" * 100}, {"type": "image_url", "image_url": {"url": "data:..."}}]
    (message,) = edited({"messages": [user(parts)]})["messages"]
    assert message["content"] == "t" * 40


def test_a_message_kept_whole_keeps_its_bytes() -> None:
    last = b'{"role":"user", "content":"\\u0041bc", "x": 1E2}'
    body = b'{"messages":[{"role":"user","content":"' + b"x" * 100 + b'"},' + last + b"]}"
    found = cut_of(body)
    assert found.edits["messages"].endswith(last + b"]")


def test_anthropics_system_stands_apart() -> None:
    body = {"system": "s" * 60, "messages": [user("u" * 60)]}
    kept = edited(body, ANTHROPIC)
    assert kept["system"] == "s" * 20 and kept["messages"][0]["content"] == "u" * 20


@pytest.mark.parametrize(
    ("prompt", "kept"),
    [
        ("p" * 100, "p" * 40),
        (["a" * 50, "b"], ["a" * 40, "b"]),
        (list(range(100)), list(range(80, 100))),
        ([[1] * 30, [2]], [[1] * 20, [2]]),
    ],
)
@pytest.mark.parametrize("dialect", [Dialect.OPENAI_COMPLETIONS, Dialect.LLAMACPP_COMPLETION])
def test_prompts(prompt: Any, kept: Any, dialect: Dialect) -> None:
    assert edited({"prompt": prompt}, dialect) == {"prompt": kept}


def test_tritons_text_and_responses() -> None:
    assert edited({"text_input": "x" * 99}, Dialect.TRITON_GENERATE) == {"text_input": "x" * 40}
    assert edited({"input": "x" * 99}, Dialect.OPENAI_RESPONSES) == {"input": "x" * 40}
    body = {"instructions": "i" * 99, "input": [user("u" * 99)]}
    assert edited(body, Dialect.OPENAI_RESPONSES) == {"instructions": "i" * 20, "input": [user("u" * 20)]}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": None},
        {"messages": {}},
        {"messages": [1, "x"]},
        {"messages": [{"role": 7, "content": {"deep": 1}}]},
        {"messages": []},
        {"messages": [{"content": "x" * 100}]},
        {"messages": [{"role": "user"}] * 50},
    ],
)
def test_odd_shapes_raise_nothing(body: Any) -> None:
    for dialect in Dialect:
        if dialect is not Dialect.TRITON_INFER:
            for raw in cut_of(body, dialect).edits.values():
                assert json.loads(raw), "never an empty conversation"


@given(text=st.text(max_size=200), size=st.integers(0, 100))
def test_ends_are_whole_characters_within_the_size(text: str, size: int) -> None:
    text = text.encode("utf-8", "ignore").decode()
    assert text.endswith(tail(text, size)) and len(tail(text, size).encode()) <= size
    assert text.startswith(head(text, size)) and len(head(text, size).encode()) <= size


TURN = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["system", "user", "assistant", "tool"]),
        "content": st.none()
        | st.text(st.characters(codec="utf-8"), max_size=60)
        | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": st.text(st.characters(codec="utf-8"))})),
    }
)


@given(turns=st.lists(TURN, max_size=8), tokens=st.integers(4, 60))
def test_what_leaves_is_never_longer_than_asked_but_for_what_has_no_text(turns: list[Any], tokens: int) -> None:
    found = cut_of({"messages": turns}, tokens=tokens)
    if "messages" in found.edits:
        kept = json.loads(found.edits["messages"])
        assert kept
        texts = [each["content"] for each in kept if isinstance(each["content"], str)]
        assert sum(len(text.encode()) for text in texts) <= tokens * 2 or len(kept) == 1
        roles = [each["role"] for each in kept if each["role"] != "system"]
        assert not roles or roles[0] == "user" or len(roles) == 1

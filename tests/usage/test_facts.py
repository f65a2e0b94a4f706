"""Facts of an answer, and how they come together."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extproc.usage.facts import (
    MAX_TOKENS,
    NOTHING,
    Facts,
    decoded,
    filled,
    joined,
    name,
    output,
    reason,
    tokens,
    total,
)


@pytest.mark.parametrize(
    ("told", "more", "expected"),
    [
        (NOTHING, NOTHING, NOTHING),
        (Facts(model="a", pieces=1), NOTHING, Facts(model="a", pieces=1)),
        (Facts(model="a", pieces=1), Facts(model="b", pieces=2), Facts(model="a", pieces=3)),
        (Facts(output_tokens=1, prompt_tokens=4), Facts(output_tokens=9), Facts(output_tokens=9, prompt_tokens=4)),
        (Facts(output_tokens=1), Facts(output_tokens=9, adds=True), Facts(output_tokens=10)),
        (NOTHING, Facts(output_tokens=0, adds=True), Facts(output_tokens=0)),
        (Facts(output_tokens=7), Facts(adds=True), Facts(output_tokens=7)),
        (Facts(finish_reason="stop"), Facts(failed=True), Facts(finish_reason="stop", failed=True)),
        (Facts(finish_reason="stop"), Facts(finish_reason="length"), Facts(finish_reason="length")),
    ],
)
def test_joined(told: Facts, more: Facts, expected: Facts) -> None:
    assert joined(told, more) == expected


@pytest.mark.parametrize("value", [None, -1, True, 1.0, "3", MAX_TOKENS, [], {}])
def test_what_is_no_count_of_tokens(value: Any) -> None:
    assert tokens(value) is None


def test_counts() -> None:
    assert tokens(0) == 0
    assert total(1, None, 2) == 3
    assert total(None, "x") is None
    assert output(5, 3, 100) == 5
    assert output(None, 3, 10) == 7
    assert output(None, 10, 3) == 0
    assert output(None, None, 10) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("stop", "stop"),
        ("end_turn", "stop"),
        ("limit", "length"),
        ("max_tokens", "length"),
        ("novel", "novel"),
        ("x" * 99, "x" * 32),
        (None, ""),
        (3, ""),
        ("", ""),
        (["stop"], ""),
    ],
)
def test_finish_reasons_are_spelled_as_openai_s(value: Any, expected: str) -> None:
    assert reason(value) == expected


@pytest.mark.parametrize(
    ("json", "expected"), [(b"", 0), (b"null", 0), (b'""', 0), (b"[]", 0), (b"{}", 0), (b'"a"', 1), (b"[{}]", 1)]
)
def test_filled(json: bytes, expected: bool) -> None:
    assert filled(msgspec.Raw(json)) is bool(expected)


def test_what_does_not_fit_is_none() -> None:
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(list[int])
    assert decoded(decoder, b"[1]") == [1]
    for document in (b"", b"{", b'["1"]', b"[" * 100_000, b'"\xff"'):
        assert decoded(decoder, document) is None
    assert decoded(msgspec.json.Decoder(str), b'"\xff"') is None


def test_names() -> None:
    assert (name("m"), name(None), name(3)) == ("m", "", "")

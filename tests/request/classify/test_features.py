"""Text becomes rows of a table, whatever the text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.request.classify.features import MOST_CHARS, hashing, rows

HOW = hashing(latin=(3, 5), han=(1, 2, 3), bits=16, seed=7)


def found(text: str) -> list[int]:
    return sorted(rows(text, HOW)[0].tolist())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Where is my ORDER", "where is my order"),
        ("order 12345", "order 9"),
        ("order １２３４", "order 12"),
        ("ｏｒｄｅｒ", "order"),
        ("a  b\n\tc", "a b c"),
        ("hello!!! world", "hello    world"),
        ("退款，谢谢", "退款。谢谢"),
        ("退 款", "退 款"),
        ("訂單", "订单"),
        ("pay £5", "pay $7"),
        ("hi 😀 there", "hi   there"),
    ],
)
def test_spellings_that_count_as_equal(one: str, other: str) -> None:
    squeezed = [" ".join(each.replace("!", " ").split()) if "!" in each else each for each in (one, other)]
    assert set(found(squeezed[0])) & set(found(squeezed[1])), "they share n-grams"


@pytest.mark.parametrize(
    ("one", "other"), [("Where is my ORDER", "where is my order"), ("訂單", "订单"), ("５", "7")]
)
def test_spellings_that_are_one(one: str, other: str) -> None:
    assert found(one) == found(other)


@pytest.mark.parametrize("text", ["", " ", "\n\t", "!!! ...", "😀😀", "\ud800", "\u200b"])
def test_nothing_to_read(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize(
    ("text", "chinese"), [("hello", False), ("退款", True), ("refund 退款", True), ("café", False)]
)
def test_the_language(text: str, chinese: bool) -> None:
    assert rows(text, HOW)[1] is chinese


def test_a_long_text_is_told_by_its_ends() -> None:
    half = MOST_CHARS // 2
    head, tail = "refund please " * half, "thank you " * half
    assert found(head[:half] + "x" * 100_000 + tail[-half:]) == found(head[:half] + "y" * 50_000 + tail[-half:])


@given(st.text(st.characters(), max_size=3000))
def test_any_text_gives_bounded_rows(text: str) -> None:
    numbers, _ = rows(text, HOW)
    assert len(numbers) <= 3 * (MOST_CHARS + 3)
    assert numbers.dtype == np.intp and ((numbers >= 0) & (numbers < 1 << 16)).all()
    assert numbers.tolist() == rows(text, HOW)[0].tolist()


def test_one_seed_one_hashing() -> None:
    again = hashing(latin=(3, 5), han=(1, 2, 3), bits=16, seed=7)
    other = hashing(latin=(3, 5), han=(1, 2, 3), bits=16, seed=8)
    text = "where is my order"
    assert rows(text, again)[0].tolist() == rows(text, HOW)[0].tolist() != rows(text, other)[0].tolist()

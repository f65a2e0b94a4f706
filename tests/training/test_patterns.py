"""Patterns become texts, and mistakes in them are all named."""

from __future__ import annotations

import random

import pytest

from extproc.errors import ConfigError
from extproc.training.patterns import read, spelled

FILE = """
# a comment
@goods: shoes|a {colour} dress
@colour: red|blue
=returns
(can|may) i return (my |){goods}
=thanks
thank you
"""


def test_every_spelling_comes_up() -> None:
    found = read(FILE, "f")
    assert [each.label for each in found.patterns] == ["returns", "thanks"]
    texts = {spelled(found.patterns[0], found.slots, random.Random(seed)) for seed in range(200)}
    assert texts == {
        f"{may} i return {my}{goods}"
        for may in ("can", "may")
        for my in ("my ", "")
        for goods in ("shoes", "a red dress", "a blue dress")
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a pattern", "f.1: a pattern before the first =label"),
        ("=x\n{nobody}", "f.2: no slot nobody"),
        ("=x\n(a|(b|c))", "f.2: parentheses"),
        ("=x\n(a|b", "f.2: parentheses"),
        ("@slot one|two\n=x\na", "f.1: allowed"),
    ],
)
def test_mistakes(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem.replace("(", r"\(")):
        read(text, "f")


def test_a_slot_that_names_itself_ends() -> None:
    found = read("@a: {a} x\n=l\n{a}", "f")
    assert spelled(found.patterns[0], found.slots, random.Random(1))

"""The base of every configuration class: frozen, strict, no unknown keys."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import Discriminator, Tag, TypeAdapter, ValidationError

from extproc.errors import Problem
from extproc.model.config import SHAPE, Config, Name, Tokens, problems_of


class Example(Config):
    name: Name
    tokens: Tokens
    share: float


RIGHT: dict[str, Any] = {"name": "a", "tokens": 1, "share": 0.5}


def test_right() -> None:
    assert Example.model_validate(RIGHT).tokens == 1
    assert Example.model_validate(RIGHT | {"share": 1}).share == 1.0


@pytest.mark.parametrize(
    "over",
    [
        {"unknown": 1},
        {"tokens": "1"},
        {"tokens": 1.0},
        {"tokens": True},
        {"tokens": 0},
        {"tokens": 10_000_001},
        {"share": "0.5"},
        {"share": True},
        {"share": float("nan")},
        {"share": float("inf")},
        {"share": None},
        {"name": 5},
    ],
)
def test_wrong(over: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Example.model_validate(RIGHT | over)


def test_nothing_is_optional() -> None:
    with pytest.raises(ValidationError) as refusal:
        Example.model_validate({})
    assert refusal.value.error_count() == 3


def test_frozen() -> None:
    example = Example.model_validate(RIGHT)
    with pytest.raises(ValidationError, match="frozen"):
        example.tokens = 2  # type: ignore[misc]


@pytest.mark.parametrize("name", ["a", "0", "engine-1", "llama_70b.v2", "x" * 64])
def test_names(name: str) -> None:
    assert TypeAdapter(Name).validate_python(name) == name


@pytest.mark.parametrize("name", ["", "A", "-a", "_a", "a b", "a\n", "a@b", "é", "x" * 65, "a,b", "a:b"])
def test_no_names(name: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Name).validate_python(name)


# ── in the words of somebody who writes the file ─────────────────────────────────────────────────


def shape(given: Any) -> str:
    return f"{SHAPE}short" if isinstance(given, str) else f"{SHAPE}long"


class Outer(Config):
    inner: list[Example]
    either: Annotated[
        Annotated[Name, Tag(f"{SHAPE}short")] | Annotated[Example, Tag(f"{SHAPE}long")], Discriminator(shape)
    ]


def told(tree: Any, *, at: str = "") -> list[Problem]:
    with pytest.raises(ValidationError) as refusal:
        Outer.model_validate(tree)
    return list(problems_of(refusal.value, at=at))


@pytest.mark.parametrize(
    ("tree", "found"),
    [
        ({"inner": [RIGHT], "either": "a", "x": 1}, Problem("x", "unknown key")),
        ({"inner": []}, Problem("either", "Field required")),
        ({"inner": [RIGHT, RIGHT | {"tokens": 0}], "either": "a"},
         Problem("inner.1.tokens", "allowed: greater than or equal to 1")),
        ({"inner": [], "either": RIGHT | {"share": "1"}}, Problem("either.share", "allowed: a valid number")),
        ({"inner": {}, "either": RIGHT}, Problem("inner", "allowed: a valid list")),
    ],
)  # fmt: skip
def test_a_mistake_is_a_problem_at_its_key(tree: Any, found: Problem) -> None:
    assert told(tree) == [found]


def test_every_mistake_is_told_below_a_path() -> None:
    assert [problem.path for problem in told({"inner": [{}], "either": "A"}, at="outer")] == [
        "outer.inner.0.name",
        "outer.inner.0.tokens",
        "outer.inner.0.share",
        "outer.either",
    ]


def test_a_mistake_of_the_whole_has_an_empty_path() -> None:
    assert [problem.path for problem in told([])] == [""]

"""The base of every configuration class: frozen, strict, no unknown keys."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from extproc.model.config import Config, Name, Tokens


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

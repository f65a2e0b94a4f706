"""The profile for latency: greedy, and one piece where no stream was asked for."""

from __future__ import annotations

from typing import Any

import pytest

from extproc.decide import lowest_latency
from extproc.model.names import Field
from extproc.model.values import ABSENT, Scalar
from tests.decide.worlds import chat, context, decided

BY_MODEL = "inference_params: {lowest_latency: {models: ['autocomplete-*']}}"
BY_PATH = "inference_params: {lowest_latency: {paths: [/v1/chat]}}"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, [(Field.TEMPERATURE, ABSENT, 0), (Field.STREAM, ABSENT, False)]),
        ({Field.TEMPERATURE: 0}, [(Field.STREAM, ABSENT, False)]),
        ({Field.TEMPERATURE: 0.9, Field.STREAM: True}, [(Field.TEMPERATURE, 0.9, 0)]),
        ({Field.TEMPERATURE: 0, Field.STREAM: False}, []),
    ],
)
def test_changes(given: dict[Field, Scalar], expected: list[tuple[Field, Any, Any]]) -> None:
    found = lowest_latency.sampling(context(given, lowest_latency=True), given)
    assert [(c.field, c.before, c.after) for c in found] == expected


def test_off_by_default() -> None:
    assert list(lowest_latency.sampling(context(), {})) == []


CASES = [
    ({}, {"temperature": 0, "top_p": 1, "stream": False, "max_tokens": 256}),
    ({"stream": True}, {"temperature": 0, "top_p": 1, "stream": True, "max_tokens": 256}),
    ({"stream": False}, {"temperature": 0, "top_p": 1, "stream": False, "max_tokens": 256}),
    ({"stream": None}, {"temperature": 0, "top_p": 1, "stream": False, "max_tokens": 256}),
    (
        {"temperature": 1.2, "top_p": 0.5, "top_k": 40, "min_p": 0.1, "max_tokens": 10},
        {"temperature": 0, "top_p": 1, "stream": False, "max_tokens": 10},
    ),
]


@pytest.mark.parametrize(("asked", "leaves"), CASES)
@pytest.mark.parametrize(("over", "model"), [(BY_MODEL, "autocomplete-1"), (BY_PATH, "any")])
def test_a_whole_request(over: str, model: str, asked: dict[str, Any], leaves: dict[str, Any]) -> None:
    found = decided(chat(**asked) | {"model": model}, over=over)
    rest = {key: value for key, value in found.json.items() if key not in ("model", "messages")}
    assert rest == leaves


@pytest.mark.parametrize(("over", "model"), [(BY_MODEL, "chat-1"), (BY_PATH, "any")])
def test_other_models_and_paths_keep_their_tier(over: str, model: str) -> None:
    found = decided({"model": model, "prompt": "hello"}, "/v1/completions", over=over)
    assert found.json["temperature"] == 0.7
    assert "stream" not in found.json


def test_a_trusted_caller_still_has_the_last_word_on_temperature() -> None:
    found = decided(
        chat(model="autocomplete-1"), over=BY_MODEL, headers=[("x-param-temperature", b"0.4")], trusted=True
    )
    assert found.json["temperature"] == 0.4


def test_the_strict_tier_does_not_warm_it_up() -> None:
    found = decided(chat("order #12345", temperature=0.9), over=BY_PATH)
    assert (found.json["temperature"], found.decision.tier) == (0, "strict")

"""How many answers one request may ask for."""

from __future__ import annotations

import pytest

from extproc.model.names import Field
from tests.decide.worlds import chat, decided, refused


@pytest.mark.parametrize("key", ["n", "best_of"])
@pytest.mark.parametrize(
    ("asked", "leaves"), [(1, 1), (3, 3), (4, 4), (5, 4), (64, 4), (10**14, 4), (0, 0), (None, None)]
)
def test_at_most_four(key: str, asked: int | None, leaves: int | None) -> None:
    found = decided(chat(**{key: asked}))
    assert found.json[key] == leaves
    field = Field(key)
    assert (field in found.changes) == (asked != leaves)
    if field in found.changes:
        assert (found.changes[field].before, found.changes[field].rule) == (asked, "fan_out")


def test_never_added() -> None:
    assert decided(chat()).json.keys().isdisjoint({"n", "best_of"})


def test_both_at_once() -> None:
    found = decided(chat(n=64, best_of=100))
    assert (found.json["n"], found.json["best_of"]) == (4, 4)


def test_the_limits_come_from_the_config() -> None:
    over = "inference_params: {fan_out: {n: 1, best_of: 2}}"
    found = decided(chat(n=3, best_of=3), over=over)
    assert (found.json["n"], found.json["best_of"]) == (1, 2)


def test_llamacpp_has_a_word_of_its_own() -> None:
    found = decided({"prompt": "x", "n_cmpl": 64}, "/completion")
    assert found.json["n_cmpl"] == 4


def test_in_triton_parameters() -> None:
    found = decided({"text_input": "x", "parameters": {"n": 64}}, "/v2/models/m/generate")
    assert found.json["parameters"]["n"] == 4


@pytest.mark.parametrize("key", ["n", "best_of"])
@pytest.mark.parametrize("asked", [b'"64"', b"true", b"[64]", b"{}", b"-1", b"1.5", b"1e400", b"1e20"])
def test_what_is_no_count_is_refused(key: str, asked: bytes) -> None:
    status, error = refused(b'{"messages":[],"' + key.encode() + b'":' + asked + b"}")
    assert (status, error["param"]) == (400, key)

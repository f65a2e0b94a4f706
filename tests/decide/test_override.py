"""What a trusted caller sets by header."""

from __future__ import annotations

import pytest

from extproc.decide import override
from extproc.model.names import Field
from extproc.model.values import ABSENT, Scalar
from tests.decide.worlds import chat, context, decided


@pytest.mark.parametrize("field", [Field.TEMPERATURE, Field.TOP_P])
@pytest.mark.parametrize(("current", "changed"), [(None, True), (0.5, False), (0.1, True), (1.0, True)])
def test_sets_the_value(field: Field, current: float | None, changed: bool) -> None:
    values: dict[Field, Scalar] = {} if current is None else {field: current}
    found = list(override.sampling(context(values, overrides={field: 0.5}), values))
    before = ABSENT if current is None else current
    assert [(c.field, c.before, c.after, c.rule) for c in found] == (
        [(field, before, 0.5, "override")] if changed else []
    )


def test_zero_is_a_value() -> None:
    assert [c.after for c in override.sampling(context(overrides={Field.TEMPERATURE: 0.0}), {})] == [0.0]


def test_nobody_said_anything() -> None:
    assert list(override.sampling(context(), {})) == []


def test_the_length_is_judged_elsewhere() -> None:
    assert list(override.sampling(context(overrides={Field.MAX_TOKENS: 5}), {})) == []


@pytest.mark.parametrize(
    ("text", "header", "asked", "leaves"),
    [
        ("order #12345", b"0.9", None, 0.9),
        ("order #12345", b"0.9", 0.1, 0.9),
        ("slogan", b"0.1", 1.5, 0.1),
        ("slogan", b"0", 1.5, 0),
        ("slogan", b"2", None, 2),
    ],
)
def test_wins_over_every_tier(text: str, header: bytes, asked: float | None, leaves: float) -> None:
    body = chat(text) if asked is None else chat(text, temperature=asked)
    found = decided(body, headers=[("x-param-temperature", header)], trusted=True)
    assert found.json["temperature"] == leaves
    assert found.changes[Field.TEMPERATURE].rule == "override"
    assert [record.rule for record in found.audit if record.field == "temperature"] == ["override"]


def test_top_p_wins_over_the_line() -> None:
    body = chat("order #12345", temperature=0.9)
    found = decided(body, headers=[("x-param-top-p", b"0.99")], trusted=True)
    assert (found.json["temperature"], found.json["top_p"]) == (0.3, 0.99)


def test_without_proof_it_has_no_effect() -> None:
    found = decided(chat(), headers=[("x-param-temperature", b"0.1"), ("x-param-max-tokens", b"5")])
    assert (found.json["temperature"], found.json["max_tokens"]) == (0.7, 256)

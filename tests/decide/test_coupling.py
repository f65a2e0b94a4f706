"""Temperature, top_p and beams fit together."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.decide import coupling
from extproc.decide.pipeline import changes
from extproc.model.names import SAMPLING_FIELDS, Field, Tier
from extproc.model.values import ABSENT, Scalar
from extproc.parameters import LinePoint
from tests.decide.worlds import chat, context, decided

POINTS = [
    LinePoint(temperature=0.3, top_p=0.85),
    LinePoint(temperature=0.5, top_p=0.88),
    LinePoint(temperature=0.7, top_p=0.90),
]


@pytest.mark.parametrize(
    ("temperature", "top_p"),
    [
        (0.0, 0.85),
        (0.1, 0.85),
        (0.3, 0.85),
        (0.35, 0.8575),
        (0.4, 0.865),
        (0.5, 0.88),
        (0.6, 0.89),
        (0.65, 0.895),
        (0.7, 0.90),
        (0.71, 0.90),
        (2.0, 0.90),
    ],
)
def test_the_line(temperature: float, top_p: float) -> None:
    assert coupling.on_line(POINTS, temperature) == top_p


def test_a_line_of_one_point_is_flat() -> None:
    assert [coupling.on_line(POINTS[:1], t) for t in (0, 0.3, 1)] == [0.85] * 3


@given(st.floats(0, 2), st.floats(0, 2))
def test_the_line_rises_and_stays_between_its_ends(low: float, high: float) -> None:
    low, high = sorted((low, high))
    assert 0.85 <= coupling.on_line(POINTS, low) <= coupling.on_line(POINTS, high) <= 0.90


LINE = [
    ("lowered_and_absent", Tier.STRICT, {Field.TEMPERATURE: 0.9}, 0.85),
    ("lowered_and_higher", Tier.STRICT, {Field.TEMPERATURE: 0.9, Field.TOP_P: 0.95}, 0.85),
    ("lowered_and_one", Tier.STRICT, {Field.TEMPERATURE: 0.9, Field.TOP_P: 1}, 0.85),
    ("lowered_and_below", Tier.STRICT, {Field.TEMPERATURE: 0.9, Field.TOP_P: 0.5}, None),
    ("lowered_and_on_it", Tier.STRICT, {Field.TEMPERATURE: 0.9, Field.TOP_P: 0.85}, None),
    ("absent_under_a_cap", Tier.STRICT, {}, 0.85),
    ("not_lowered", Tier.STRICT, {Field.TEMPERATURE: 0.2, Field.TOP_P: 0.99}, None),
    ("on_target", Tier.STRICT, {Field.TEMPERATURE: 0.3}, None),
    ("filled_in_normal", Tier.NORMAL, {}, None),
    ("kept_in_normal", Tier.NORMAL, {Field.TEMPERATURE: 1.5, Field.TOP_P: 0.99}, None),
    ("filled_in_creative", Tier.CREATIVE, {Field.TOP_P: 0.99}, None),
]


@pytest.mark.parametrize(("tier", "asked", "top_p"), [case[1:] for case in LINE], ids=[case[0] for case in LINE])
def test_where_temperature_was_lowered(tier: Tier, asked: dict[Field, Scalar], top_p: float | None) -> None:
    found = {c.field: c for c in changes(context(asked, tier=tier))}
    change = found.get(Field.TOP_P)
    if top_p is None:
        assert change is None
    else:
        assert change is not None
        assert (change.before, change.after, change.rule) == (
            asked.get(Field.TOP_P, ABSENT),
            top_p,
            "coupling.line",
        )


@pytest.mark.parametrize(
    ("target", "top_p"), [(0.2, 0.85), (0.4, 0.865), (0.5, 0.88), (0.6, 0.89), (0.7, 0.9), (0.95, 0.9)]
)
def test_lowered_to_anywhere_on_the_line(target: float, top_p: float) -> None:
    over = f"inference_params: {{temperature: {{strict: {target}}}}}"
    found = decided(chat("order #12345", temperature=1.1), over=over)
    assert (found.json["temperature"], found.json["top_p"]) == (target, top_p)


def test_a_trusted_caller_lowers_it_too() -> None:
    found = decided(chat(temperature=0.9), headers=[("x-param-temperature", b"0.5")], trusted=True)
    assert (found.json["temperature"], found.json["top_p"]) == (0.5, 0.88)


def test_force_that_raises_is_no_lowering() -> None:
    over = "inference_params: {modes: {temperature: {strict: force}}}"
    found = decided(chat("order #12345", temperature=0.1, top_p=0.99), over=over)
    assert (found.json["temperature"], found.json["top_p"]) == (0.3, 0.99)


@pytest.mark.parametrize("zero", [b"0", b"0.0", b"-0.0", b"0e5", b"0E-7"])
@pytest.mark.parametrize("top_p", [None, 0.2, 0.99])
def test_temperature_zero_is_greedy(zero: bytes, top_p: float | None) -> None:
    extra = "" if top_p is None else f',"top_p":{top_p}'
    body = b'{"model":"m","temperature":' + zero + extra.encode() + b',"messages":[]}'
    found = decided(body)
    assert found.json["top_p"] == 1
    assert b'"temperature":' + zero + b"," in found.sent
    assert found.changes[Field.TOP_P].rule == "coupling.greedy"


@pytest.mark.parametrize("one", [b"1", b"1.0", b"1.00", b"10e-1"])
def test_a_top_p_of_one_keeps_its_spelling(one: bytes) -> None:
    found = decided(b'{"temperature":0,"top_p":' + one + b"}")
    assert b'"top_p":' + one + b"," in found.sent
    assert Field.TOP_P not in found.changes


KEYS: list[tuple[str, Any]] = [
    ("top_k", 40),
    ("min_p", 0.05),
    ("typical_p", 0.9),
    ("typ_p", 0.9),
    ("xtc_probability", 0.1),
    ("xtc_threshold", 0.1),
    ("dynatemp_range", 0.5),
    ("mirostat", 2),
]


@pytest.mark.parametrize(("key", "value"), KEYS)
def test_temperature_zero_leaves_no_sampling_field(key: str, value: Any) -> None:
    found = decided(chat(temperature=0, **{key: value}, seed=7))
    assert key not in found.json
    assert found.json["seed"] == 7
    assert decided(chat(temperature=0.1, **{key: value})).json[key] == value


def test_all_sampling_fields_at_once() -> None:
    found = decided(chat(temperature=0, **dict(KEYS)))
    assert found.json.keys() == {"model", "messages", "temperature", "top_p", "max_tokens"}
    assert set(SAMPLING_FIELDS) <= found.changes.keys()


def test_a_trusted_top_p_stands_beside_temperature_zero() -> None:
    found = decided(chat(temperature=0), headers=[("x-param-top-p", b"0.5")], trusted=True)
    assert found.json["top_p"] == 0.5


BEAMS = [
    ("one_beam", 1, 0.9, 0.5, 0.9, 0.5),
    ("two_beams", 2, 0.9, 0.5, 0.6, 0.5),
    ("two_beams_cool", 2, 0.4, 0.5, 0.4, 0.5),
    ("two_beams_at_the_limit", 2, 0.6, 0.5, 0.6, 0.5),
    ("five_beams", 5, 0.9, 0.5, 0.6, 0.5),
    ("six_beams", 6, 0.9, 0.5, 0.6, 0.92),
    ("six_beams_wide_and_cool", 6, 0.5, 0.95, 0.5, 0.95),
    ("six_beams_wide_and_hot", 6, 0.9, 0.95, 0.6, 0.92),
    ("two_beams_wide_and_hot", 2, 0.9, 0.95, 0.6, 0.89),
    ("six_beams_at_the_limit", 6, 0.5, 0.92, 0.5, 0.92),
    ("many_beams", 64, 0.2, 0.1, 0.2, 0.92),
    ("no_beams", 0, 0.9, 0.5, 0.9, 0.5),
]


@pytest.mark.parametrize("key", ["num_beams", "beam_width"])
@pytest.mark.parametrize(
    ("beams", "asked", "asked_p", "leaves", "leaves_p"), [case[1:] for case in BEAMS], ids=[c[0] for c in BEAMS]
)
def test_beams(*, key: str, beams: int, asked: float, asked_p: float, leaves: float, leaves_p: float) -> None:
    found = decided(chat(temperature=asked, top_p=asked_p, **{key: beams}))
    assert (found.json["temperature"], found.json["top_p"]) == (leaves, leaves_p)
    assert found.json[key] == beams


def test_beams_without_temperature_get_theirs() -> None:
    over = "inference_params: {temperature: {normal: 0.7}}"
    found = decided(chat(num_beams=2), over=over)
    assert found.json["temperature"] == 0.6
    assert found.changes[Field.TEMPERATURE].rule == "coupling.beams"
    assert "top_p" not in found.json


def test_beams_come_last_and_win() -> None:
    """The strict tier lowers temperature, the line narrows top_p, and six beams widen it again."""
    found = decided(chat("order #12345", temperature=0.9, top_p=0.99, num_beams=6))
    assert (found.json["temperature"], found.json["top_p"]) == (0.3, 0.92)
    assert found.changes[Field.TOP_P].before == 0.99
    assert found.changes[Field.TOP_P].rule == "coupling.beams"


def test_beams_win_over_a_trusted_caller() -> None:
    headers = [("x-param-temperature", b"1.5"), ("x-param-top-p", b"0.3")]
    found = decided(chat(num_beams=6), headers=headers, trusted=True)
    assert (found.json["temperature"], found.json["top_p"]) == (0.6, 0.92)


def test_two_spellings_of_beams_count_as_the_larger() -> None:
    found = decided(chat(num_beams=1, beam_width=6, temperature=0.9, top_p=0.1))
    assert (found.json["temperature"], found.json["top_p"]) == (0.6, 0.92)


@settings(deadline=None)
@given(
    temperature=st.none() | st.floats(0, 2),
    top_p=st.none() | st.floats(0, 1),
    beams=st.integers(0, 12),
    tier=st.sampled_from(Tier),
)
def test_the_limits_hold_for_every_request(
    temperature: float | None, top_p: float | None, beams: int, tier: Tier
) -> None:
    asked: dict[Field, Scalar] = {Field.BEAMS: beams}
    if temperature is not None:
        asked[Field.TEMPERATURE] = temperature
    if top_p is not None:
        asked[Field.TOP_P] = top_p
    leaves: dict[Field, Any] = dict(asked)
    for change in changes(context(asked, tier=tier)):
        leaves[change.field] = change.after
    if tier is Tier.STRICT:
        assert leaves[Field.TEMPERATURE] <= 0.3
        if temperature is None or temperature > 0.3:
            assert leaves[Field.TOP_P] <= (0.92 if beams > 5 else 0.85)
    if beams > 1:
        assert leaves[Field.TEMPERATURE] <= 0.6
    if beams > 5:
        assert leaves.get(Field.TOP_P, 1) >= 0.92
    if leaves[Field.TEMPERATURE] == 0:
        assert leaves[Field.TOP_P] == 1


def test_a_temperature_that_beams_lower_gets_its_top_p() -> None:
    found = decided(chat(temperature=1.0, num_beams=2))
    assert (found.json["temperature"], found.json["top_p"]) == (0.6, 0.89)


@pytest.mark.parametrize(("asked", "leaves"), [(1.0, 1), (0, 3)], ids=["made_greedy", "greedy_by_itself"])
def test_answers_that_rules_make_equal_are_one(asked: float, leaves: int) -> None:
    fast = "inference_params: {lowest_latency: {paths: [/v1/chat]}}"
    assert decided(chat(temperature=asked, n=3), over=fast).json["n"] == leaves


def test_a_range_around_a_capped_temperature_goes() -> None:
    found = decided(chat("order #12345", temperature=0.2, dynatemp_range=5))
    assert "dynatemp_range" not in found.json
    assert decided(chat(temperature=0.2, dynatemp_range=0.1)).json["dynatemp_range"] == 0.1

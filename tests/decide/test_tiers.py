"""Temperature by tier: every tier in every mode."""

from __future__ import annotations

import pytest

from extproc.decide import tiers
from extproc.model.names import Field, Mode, Tier
from extproc.model.values import ABSENT
from tests.decide.worlds import context

TARGETS = {Tier.STRICT: 0.3, Tier.NORMAL: 0.7, Tier.CREATIVE: 0.9}

SHIPPED = [
    (Tier.STRICT, None, 0.3),
    (Tier.STRICT, 0.9, 0.3),
    (Tier.STRICT, 0.31, 0.3),
    (Tier.STRICT, 0.3, None),
    (Tier.STRICT, 0.1, None),
    (Tier.STRICT, 0, None),
    (Tier.STRICT, 2, 0.3),
    (Tier.NORMAL, None, 0.7),
    (Tier.NORMAL, 1.5, None),
    (Tier.NORMAL, 0.1, None),
    (Tier.NORMAL, 0, None),
    (Tier.CREATIVE, None, 0.9),
    (Tier.CREATIVE, 0.2, None),
    (Tier.CREATIVE, 2, None),
]


@pytest.mark.parametrize(("tier", "asked", "becomes"), SHIPPED)
def test_shipped_modes(tier: Tier, asked: float | None, becomes: float | None) -> None:
    values = {} if asked is None else {Field.TEMPERATURE: asked}
    found = list(tiers.temperature(context(values, tier=tier), values))
    assert [(c.field, c.before, c.after, c.rule) for c in found] == (
        []
        if becomes is None
        else [(Field.TEMPERATURE, ABSENT if asked is None else asked, becomes, f"tier.{tier.value}")]
    )


@pytest.mark.parametrize("tier", Tier)
@pytest.mark.parametrize(
    ("mode", "asked", "changed"),
    [
        (Mode.DEFAULT, None, True),
        (Mode.DEFAULT, 0.0, False),
        (Mode.DEFAULT, 2.0, False),
        (Mode.CAP, None, True),
        (Mode.CAP, 0.0, False),
        (Mode.CAP, 2.0, True),
        (Mode.FORCE, None, True),
        (Mode.FORCE, 0.0, True),
        (Mode.FORCE, 2.0, True),
    ],
)
def test_every_mode_in_every_tier(tier: Tier, mode: Mode, asked: float | None, changed: bool) -> None:
    over = f"inference_params: {{modes: {{temperature: {{{tier.value}: {mode.value}}}}}}}"
    values = {} if asked is None else {Field.TEMPERATURE: asked}
    found = list(tiers.temperature(context(values, over=over, tier=tier), values))
    assert [c.after for c in found] == ([TARGETS[tier]] if changed else [])


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("tier", Tier)
def test_a_value_on_target_is_no_change(tier: Tier, mode: Mode) -> None:
    over = f"inference_params: {{modes: {{temperature: {{{tier.value}: {mode.value}}}}}}}"
    values = {Field.TEMPERATURE: TARGETS[tier]}
    assert list(tiers.temperature(context(values, over=over, tier=tier), values)) == []


def test_targets_come_from_the_config() -> None:
    over = "inference_params: {temperature: {strict: 0.05, creative: 1.4}}"
    assert [c.after for c in tiers.temperature(context(over=over, tier=Tier.STRICT), {})] == [0.05]
    assert [c.after for c in tiers.temperature(context(over=over, tier=Tier.NORMAL), {})] == [0.7]
    assert [c.after for c in tiers.temperature(context(over=over, tier=Tier.CREATIVE), {})] == [1.4]


def test_the_lowest_latency_profile_has_its_own_temperature() -> None:
    assert list(tiers.temperature(context(lowest_latency=True), {})) == []


@pytest.mark.parametrize(
    ("tier", "asked", "reason"),
    [
        (Tier.STRICT, None, "absent, filled with 0.3"),
        (Tier.STRICT, 1.0, "capped at 0.3"),
    ],
)
def test_reasons(tier: Tier, asked: float | None, reason: str) -> None:
    values = {} if asked is None else {Field.TEMPERATURE: asked}
    assert [c.reason for c in tiers.temperature(context(values, tier=tier), values)] == [reason]


def test_reason_of_force() -> None:
    over = "inference_params: {modes: {temperature: {normal: force}}}"
    values = {Field.TEMPERATURE: 1.0}
    assert [c.reason for c in tiers.temperature(context(values, over=over), values)] == ["forced to 0.7"]

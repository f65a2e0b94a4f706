"""Mistakes in the protection keys are told with their place."""

from __future__ import annotations

import pytest

from extproc.errors import ConfigError
from extproc.settings import load


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("protection: {breakers: {pool: {probe_share: 0.06}}}", "protection.breakers.pool.probe_share"),
        ("protection: {breakers: {pool: {trip: [{}]}}}", "protection.breakers.pool.trip.0"),
        ("protection: {breakers: {pool: {trip: [{error_rate: 1}]}}}", "protection.breakers.pool.trip.0.error_rate"),
        ("protection: {degrade: {leave_load: 0.9}}", "protection.degrade"),
        ("protection: {degrade: {mode: maybe}}", "protection.degrade.mode"),
        ("protection: {rollback: {breach_s: 400}}", "protection.rollback"),
        ("protection: {fallback: {classes: [urgent]}}", "protection.fallback.classes.0"),
        ("drift: {d: 1.5}", "drift.d"),
        ("drift: {freeze: {samples: 1}}", "drift.freeze.samples"),
        ("webhook: {url: {}}", "webhook.url"),
        ("protection: {nonsense: 1}", "protection.nonsense"),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, path: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(text)
    assert path in [problem.path for problem in raised.value.problems]


def test_no_rules_at_all_are_allowed() -> None:
    assert load("protection: {breakers: {pool: {trip: []}}}").protection.breakers.pool.trip == []

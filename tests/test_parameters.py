"""The parameter set: its shapes, and the version that its content has."""

from __future__ import annotations

import re
from typing import Any

import pytest

from extproc.errors import ConfigError
from extproc.model.names import Mode, Tier
from extproc.parameters import ParameterSet
from extproc.settings import load


def parameters(over: str = "") -> ParameterSet:
    return load(over).parameters()


def test_shipped_values() -> None:
    params = parameters().inference_params
    assert (params.max_tokens.default, params.max_tokens.streaming_threshold) == (256, 200)
    assert params.max_tokens.whitelist == ["legal"]
    assert params.max_tokens.context_fraction == 0.65
    assert [params.temperature.of(tier) for tier in Tier] == [0.3, 0.7, 0.9]
    assert [params.modes.temperature.of(tier) for tier in Tier] == [Mode.CAP, Mode.DEFAULT, Mode.DEFAULT]
    assert params.batch.model_dump() == {"min_size": 2, "max_size": 8, "timeout_ms": 50}
    line = [(point.temperature, point.top_p) for point in params.coupling.line]
    assert line == [(0.3, 0.85), (0.5, 0.88), (0.7, 0.90)]
    assert [rule.model_dump() for rule in params.coupling.beams] == [
        {"above": 1, "max_temperature": 0.6, "min_top_p": None},
        {"above": 5, "max_temperature": None, "min_top_p": 0.92},
    ]
    assert params.fan_out.model_dump() == {"n": 4, "best_of": 4}


def test_shipped_scenarios() -> None:
    found = {name: (s.tier.value, s.length) for name, s in parameters().scenarios.items()}
    assert found == {
        "general": ("normal", None),
        "order_query": ("strict", 120),
        "returns": ("strict", 210),
        "payment": ("strict", None),
        "legal": ("strict", None),
        "recommendation": ("creative", 350),
        "copywriting": ("creative", None),
    }


def test_shipped_classification() -> None:
    classify = parameters().classify
    assert (classify.default_tier, classify.default_scenario, classify.min_confidence) == ("normal", "general", 0.8)


def test_the_version_is_twelve_hex_digits_of_the_content() -> None:
    assert re.fullmatch("[0-9a-f]{12}", parameters().version())
    assert parameters().label() == f"default@{parameters().version()}"
    assert parameters("{}").version() == parameters().version()


def test_the_name_is_not_in_the_version() -> None:
    named = parameters("parameter_set: other")
    assert named.version() == parameters().version()
    assert named.label() == f"other@{named.version()}"


@pytest.mark.parametrize(
    "over",
    [
        "inference_params: {max_tokens: {default: 257}}",
        "inference_params: {max_tokens: {whitelist: []}}",
        "inference_params: {temperature: {strict: 0.31}}",
        "inference_params: {modes: {temperature: {strict: force}}}",
        "inference_params: {batch: {timeout_ms: 51}}",
        "inference_params: {coupling: {beams: []}}",
        "inference_params: {fan_out: {n: 3}}",
        "inference_params: {lowest_latency: {models: [x]}}",
        "scenarios: {general: {length: 9}}",
        "scenarios: {another: {tier: strict}}",
        "classify: {min_confidence: 0.81}",
        "classify: {rules: [{name: r, pattern: x, tier: strict}]}",
    ],
)
def test_every_edit_of_the_rules_is_another_version(over: str) -> None:
    assert parameters(over).version() != parameters().version()


@pytest.mark.parametrize(
    "over",
    [
        "limits: {max_keys: 99}",
        "shutdown_grace_s: 1",
        "trust: {identities: [x]}",
        "engines: {vllm: {min_output_tokens: 3}}",
        "inference_params: {temperature: {strict: 0.30}}",
    ],
)
def test_what_is_no_rule_is_no_other_version(over: str) -> None:
    assert parameters(over).version() == parameters().version()


def test_the_order_of_keys_is_not_content() -> None:
    one = "scenarios: {a: {tier: strict, length: 5}, b: {tier: normal}}"
    other = "scenarios: {b: {tier: normal}, a: {length: 5, tier: strict}}"
    assert parameters(one).version() == parameters(other).version()


def test_the_order_of_rules_is() -> None:
    one = "classify: {rules: [{name: a, pattern: x, tier: strict}, {name: b, pattern: x, tier: normal}]}"
    other = "classify: {rules: [{name: b, pattern: x, tier: normal}, {name: a, pattern: x, tier: strict}]}"
    assert parameters(one).version() != parameters(other).version()


@pytest.mark.parametrize(
    ("over", "path"),
    [
        ("inference_params: {max_tokens: {default: 0}}", "inference_params.max_tokens.default"),
        ("inference_params: {max_tokens: {default: 10000001}}", "inference_params.max_tokens.default"),
        ("inference_params: {max_tokens: {context_fraction: 0}}", "inference_params.max_tokens.context_fraction"),
        (
            "inference_params: {max_tokens: {context_fraction: 1.01}}",
            "inference_params.max_tokens.context_fraction",
        ),
        ("inference_params: {temperature: {strict: -0.1}}", "inference_params.temperature.strict"),
        ("inference_params: {temperature: {strict: 2.1}}", "inference_params.temperature.strict"),
        ("inference_params: {temperature: {strict: .nan}}", "inference_params.temperature.strict"),
        ("inference_params: {temperature: {strict: true}}", "inference_params.temperature.strict"),
        ("inference_params: {modes: {temperature: {strict: clamp}}}", "inference_params.modes.temperature.strict"),
        ("inference_params: {batch: {min_size: 0}}", "inference_params.batch.min_size"),
        ("inference_params: {batch: {timeout_ms: -1}}", "inference_params.batch.timeout_ms"),
        ("inference_params: {batch: {timeout_ms: 50ms}}", "inference_params.batch.timeout_ms"),
        ("inference_params: {coupling: {line: []}}", "inference_params.coupling.line"),
        ("inference_params: {coupling: {line: [{temperature: 1}]}}", "inference_params.coupling.line.0.top_p"),
        (
            "inference_params: {coupling: {line: [{temperature: 1, top_p: 1.1}]}}",
            "inference_params.coupling.line.0.top_p",
        ),
        ("inference_params: {coupling: {beams: [{above: 0}]}}", "inference_params.coupling.beams.0.above"),
        ("inference_params: {fan_out: {n: 0}}", "inference_params.fan_out.n"),
        ("scenarios: {general: {tier: odd}}", "scenarios.general.tier"),
        ("scenarios: {general: {length: 0}}", "scenarios.general.length"),
        ("scenarios: {general: {request_class: urgent}}", "scenarios.general.request_class"),
        ("classify: {min_confidence: 1.1}", "classify.min_confidence"),
        ("classify: {max_chars: 63}", "classify.max_chars"),
        ("classify: {rules: [{name: a, tier: strict}]}", "classify.rules.0.pattern"),
        ("classify: {rules: [{name: a, pattern: '(', tier: strict}]}", "classify.rules.0.pattern"),
        ("classify: {rules: [{name: a, pattern: '(?=a)', tier: strict}]}", "classify.rules.0.pattern"),
        (r"classify: {rules: [{name: a, pattern: '(a)\1', tier: strict}]}", "classify.rules.0.pattern"),
        ("classify: {rules: [{name: 'A b', pattern: a, tier: strict}]}", "classify.rules.0.name"),
    ],
)
def test_mistakes(over: str, path: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        load(over)
    assert [problem.path for problem in refusal.value.problems] == [path]


@pytest.mark.parametrize("pattern", ["(?i)order", r"\d{8,}", "[一-龥]+", r"\bcard\b", "a{1,1000}"])
def test_patterns(pattern: str) -> None:
    over: Any = f"classify: {{rules: [{{name: a, pattern: '{pattern}', tier: strict}}]}}"
    assert parameters(over).classify.rules[0].pattern == pattern


def test_nothing_of_it_can_be_changed() -> None:
    found = parameters()
    with pytest.raises(ValueError, match="frozen"):
        found.name = "x"  # type: ignore[misc]
    with pytest.raises(ValueError, match="frozen"):
        found.inference_params.max_tokens.default = 1  # type: ignore[misc]

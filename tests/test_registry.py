"""Models by name, pools by name and API."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc import registry as registry_module
from extproc.model.names import Engine, Family
from extproc.model.topology import Role
from extproc.registry import FIRST, MAX_REMEMBERED_MODELS, NONE, Profile, Registry
from extproc.settings import load
from tests.decide.worlds import pools, world

MODELS = """
models:
  - {name: exact, match: [gpt-x], context_window: 1000, min_output_tokens: 5, default_output_tokens: 64}
  - {name: small, match: ['tiny-*', mini], max_output_tokens: 100}
  - {name: question, match: ['v?'], context_window: 2000}
  - {name: range, match: ['r[0-3]'], context_window: 3000}
  - {name: late, match: ['tiny-late'], context_window: 9}
  - {name: large, match: ['*70b*', '*70B*'], context_window: 32768, max_output_tokens: 2048}
  - {name: wide, match: ['wide'], context_window: 32768}
"""


def profile(model: str, over: str = MODELS) -> Profile:
    return world(over).registry.profile(model)


@pytest.mark.parametrize(
    ("model", "name", "cap"),
    [
        ("gpt-x", "exact", 650),
        ("gpt-xx", "default", 5324),
        ("GPT-X", "default", 5324),
        ("tiny-1", "small", 100),
        ("tiny-", "small", 100),
        ("tiny-late", "small", 100),
        ("mini", "small", 100),
        ("minimal", "default", 5324),
        ("v1", "question", 1300),
        ("v12", "default", 5324),
        ("r3", "range", 1950),
        ("r4", "default", 5324),
        ("meta/Llama-3.1-70B-Instruct", "large", 2048),
        ("llama-70b", "large", 2048),
        ("70b", "large", 2048),
        ("wide", "wide", 21299),
        ("", "default", 5324),
        ("x\n70b\ny", "large", 2048),
        ("模型", "default", 5324),
        ("*70b*", "large", 2048),
        ("v\n", "question", 1300),
        ("wide\n", "default", 5324),
    ],
)
def test_profiles(model: str, name: str, cap: int) -> None:
    found = profile(model)
    assert (found.name, found.length_cap) == (name, cap)


def test_shipped_profiles() -> None:
    assert (profile("llama-70b", "").name, profile("llama-70b", "").length_cap) == ("llama-70b", 2048)
    assert (profile("other", "").name, profile("other", "").length_cap) == ("default", 5324)


def test_what_a_profile_does_not_say_comes_from_the_defaults() -> None:
    assert (profile("gpt-x").min_output_tokens, profile("gpt-x").default_output_tokens) == (5, 64)
    assert (profile("mini").min_output_tokens, profile("mini").default_output_tokens) == (None, None)
    assert profile("mini").triton == profile("other").triton
    assert profile("mini").triton.generate_place == "parameters"


def test_a_profile_has_its_own_triton_rules() -> None:
    tensors = {"max_tokens": "len", "temperature": None, "top_p": None, "top_k": None, "beams": None, "text": None}
    own = {"generate_place": "top_level", "generate_priority": True, "tensors": tensors}
    over = yaml.safe_dump({"models": [{"name": "t", "match": ["t"], "triton": own}]})
    assert profile("t", over).triton.generate_priority is True
    assert profile("t", over).triton.tensors.max_tokens == "len"
    assert profile("u", over).triton.tensors.max_tokens == "max_tokens"


def test_an_explicit_default_cap_holds_where_a_profile_has_none() -> None:
    over = MODELS + "default_model: {max_output_tokens: 300}"
    assert profile("gpt-x", over).length_cap == 300
    assert profile("mini", over).length_cap == 100
    assert profile("wide", over).length_cap == 300


@settings(deadline=None, max_examples=300)
@given(hundredths=st.integers(1, 100), window=st.integers(1, 10_000_000))
def test_the_cap_is_the_exact_floor(hundredths: int, window: int) -> None:
    found = bare(context_fraction=hundredths / 100, window=window).profile("m").length_cap
    assert found == max(1, math.floor(Fraction(hundredths, 100) * window))


SHIPPED = load("")


def bare(*, context_fraction: float = 0.65, window: int = 8192) -> Registry:
    loaded = SHIPPED
    return Registry(
        defaults=loaded.default_model.model_copy(update={"context_window": window}),
        models=[],
        pools=[],
        specs=(),
        default_pool=FIRST,
        engines=loaded.engines,
        context_fraction=context_fraction,
        lowest_latency_models=["fast", "quick-*"],
    )


@pytest.mark.parametrize(("model", "fast"), [("fast", True), ("quick-1", True), ("faster", False), ("", False)])
def test_lowest_latency(model: str, fast: bool) -> None:
    assert bare().profile(model).lowest_latency is fast


def test_a_name_is_resolved_once() -> None:
    registry = bare()
    assert registry.profile("m") is registry.profile("m")


def test_the_memory_of_names_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_REMEMBERED_MODELS == 4096
    monkeypatch.setattr(registry_module, "MAX_REMEMBERED_MODELS", 10)
    registry = bare()
    for number in range(1000):
        assert registry.profile(f"m{number}").name == "default"
        assert len(registry._profiles) <= 10


def test_pools_by_name_and_api() -> None:
    registry = world(pools(Engine.TRITON, Engine.LLAMACPP, Engine.VLLM)).registry
    assert [pool.name for pool in registry.pools] == ["triton", "llamacpp", "vllm"]
    found = registry.pool("vllm")
    assert found is not None
    assert (found.name, found.engine) == ("vllm", Engine.VLLM)
    assert registry.pool("x") is None
    by_family = {family: pool.name if (pool := registry.pool_for(family)) else None for family in Family}
    assert by_family == {"openai": "llamacpp", "anthropic": "llamacpp", "triton": "triton", "llamacpp": "llamacpp"}


def test_no_pool_for_an_api_nobody_speaks() -> None:
    registry = world(pools(Engine.VLLM)).registry
    assert registry.pool_for(Family.TRITON) is None
    assert world().registry.pool_for(Family.OPENAI) is None


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.STABLE])
def test_only_stable_pools_are_found_by_api(role: Role) -> None:
    tree = yaml.safe_load(pools(Engine.LLAMACPP, Engine.VLLM))
    tree["pools"][0]["role"] = role.value
    registry = world(yaml.safe_dump(tree)).registry
    found = registry.pool_for(Family.OPENAI)
    assert found is not None
    assert found.name == "vllm"
    assert registry.pool_for(Family.LLAMACPP) is None
    other = registry.pool("llamacpp")  # by its name it is
    assert other is not None
    assert other.role is role


def test_what_decisions_know_of_a_pool() -> None:
    tree: dict[str, Any] = {
        "pools": [
            {"name": "p", "engine": "vllm", "endpoints": ["http://h:1"], "variant": "awq-4bit"},
            {
                "name": "q",
                "engine": "vllm",
                "endpoints": ["http://h:1"],
                "hardware": {"generation": "h100", "memory_gb": 80},
            },
        ],
    }
    first, second = world(yaml.safe_dump(tree)).registry.pools
    assert (first.role, first.variant, first.accuracy, first.hardware) == (Role.STABLE, "awq-4bit", 0.982, "")
    assert (second.variant, second.accuracy, second.hardware) == ("fp16", 1.0, "h100/80GB")


@pytest.mark.parametrize("default", [FIRST, NONE, "vllm"])
def test_the_default_pool_is_known_by_its_word(default: str) -> None:
    assert world(pools(Engine.VLLM) + f"default_pool: {default}").registry.default_pool == default


@pytest.mark.parametrize(
    ("engine", "pool", "schedules"),
    [(False, None, False), (True, None, True), (True, False, False), (False, True, True)],
)
def test_whether_a_pool_schedules_by_priority(engine: bool, pool: bool | None, schedules: bool) -> None:
    tree: dict[str, Any] = {
        "engines": {"vllm": {"schedules_by_priority": engine}},
        "pools": [
            {"name": "p", "engine": "vllm", "endpoints": ["http://h:1"], "schedules_by_priority": pool},
        ],
    }
    found = world(yaml.safe_dump(tree)).registry.pool("p")
    assert found is not None
    assert found.schedules_by_priority is schedules


def test_engine_rules() -> None:
    registry = world("engines: {triton: {min_output_tokens: 7}}").registry
    assert registry.engine_rules(Engine.TRITON).min_output_tokens == 7
    assert registry.engine_rules(Engine.VLLM).min_output_tokens == 1

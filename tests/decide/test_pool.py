"""Where a request goes."""

from __future__ import annotations

import pytest
import yaml

from extproc.decide import pool
from extproc.errors import ClientFault
from extproc.model.names import SPEAKS, Engine, Family
from extproc.model.topology import Role
from extproc.model.values import Target
from tests.decide.worlds import chat, decided, pools, refused, world

ALL = pools(*Engine)


@pytest.mark.parametrize(
    ("family", "engine"),
    [
        (Family.OPENAI, Engine.VLLM),
        (Family.ANTHROPIC, Engine.VLLM),
        (Family.TRITON, Engine.TRITON),
        (Family.LLAMACPP, Engine.LLAMACPP),
    ],
)
def test_without_pools_the_engine_follows_from_the_api(family: Family, engine: Engine) -> None:
    chosen = pool.choose(world().registry, Target(family, None), None, "m")
    assert (chosen.pool, chosen.engine, chosen.schedules_by_priority) == (None, engine, False)


@pytest.mark.parametrize("family", Family)
@pytest.mark.parametrize("engine", Engine)
def test_one_pool_takes_what_its_engine_speaks(engine: Engine, family: Family) -> None:
    registry = world(pools(engine, by_priority=True)).registry
    if family in SPEAKS[engine]:
        chosen = pool.choose(registry, Target(family, None), None, "m")
        assert (chosen.pool, chosen.engine, chosen.schedules_by_priority) == (engine.value, engine, True)
        return
    with pytest.raises(ClientFault) as refusal:
        pool.choose(registry, Target(family, None), None, "m")
    assert (refusal.value.status, refusal.value.reason) == (400, "dialect_not_spoken")
    assert refusal.value.message == f"No configured engine speaks the {family.value} API."


def test_the_first_pool_that_speaks_the_api() -> None:
    registry = world(pools(Engine.TRITON, Engine.LLAMACPP, Engine.VLLM)).registry
    assert pool.choose(registry, Target(Family.OPENAI, None), None, "m").pool == "llamacpp"
    assert pool.choose(registry, Target(Family.TRITON, None), None, "m").pool == "triton"


def test_a_models_own_pool() -> None:
    over = pools(Engine.VLLM, Engine.LLAMACPP) + "models: [{name: small, match: ['tiny-*'], pool: llamacpp}]"
    assert decided(chat() | {"model": "tiny-1"}, over=over).headers["x-llm-pool"] == b"llamacpp"
    assert decided(chat() | {"model": "large"}, over=over).headers["x-llm-pool"] == b"vllm"
    assert decided(chat(), over="").headers.get("x-llm-pool") is None


def test_a_models_pool_that_does_not_speak_the_api() -> None:
    over = pools(Engine.VLLM, Engine.TRITON) + "models: [{name: served, match: ['t-*'], pool: triton}]"
    status, error = refused(chat() | {"model": "t-1"}, over=over)
    assert (status, error["code"]) == (400, "dialect_not_spoken")
    assert error["message"] == "The pool of this model (triton) does not speak the openai API."


# ── what no profile gives a pool ─────────────────────────────────────────────────────────────────

NAMED = pools(Engine.VLLM, Engine.LLAMACPP, Engine.TRITON) + "models: [{name: own, match: ['own-*'], pool: vllm}]\n"


def test_a_named_default_pool_comes_before_the_first() -> None:
    over = NAMED + "default_pool: llamacpp\n"
    assert decided(chat(), over=over).headers["x-llm-pool"] == b"llamacpp"
    assert decided(chat() | {"model": "own-1"}, over=over).headers["x-llm-pool"] == b"vllm"


def test_a_named_default_pool_takes_only_what_it_speaks() -> None:
    status, error = refused(chat(), over=NAMED + "default_pool: triton\n")
    assert (status, error["code"]) == (400, "dialect_not_spoken")
    assert error["message"] == "The pool of this model (triton) does not speak the openai API."


def test_without_a_default_pool_an_unknown_model_is_404() -> None:
    over = NAMED + "default_pool: none\n"
    status, error = refused(chat() | {"model": "gpt-nobody"}, over=over)
    assert (status, error["code"], error["param"]) == (404, "model_not_found", "model")
    assert error["message"] == "The model gpt-nobody does not exist here."
    assert decided(chat() | {"model": "own-1"}, over=over).headers["x-llm-pool"] == b"vllm"


@pytest.mark.parametrize(
    ("model", "shown"),
    [("", "of this request"), ("a" * 100, "a" * 100), ("a" * 101, "of this request"), ("a\nb", "of this request")],
)
def test_a_models_name_is_repeated_only_where_it_reads_as_one(model: str, shown: str) -> None:
    registry = world(NAMED + "default_pool: none\n").registry
    with pytest.raises(ClientFault) as refusal:
        pool.choose(registry, Target(Family.OPENAI, None), None, model)
    assert refusal.value.message == f"The model {shown} does not exist here."


@pytest.mark.parametrize("default", ["first", "none"])
def test_without_pools_nobody_is_turned_away(default: str) -> None:
    registry = world(f"default_pool: {default}").registry
    assert pool.choose(registry, Target(Family.OPENAI, None), None, "m").pool is None


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.STABLE])
def test_only_a_stable_pool_is_a_default(role: Role) -> None:
    tree = yaml.safe_load(pools(Engine.VLLM, Engine.LLAMACPP))
    tree["pools"][0]["role"] = role.value
    registry = world(yaml.safe_dump(tree)).registry
    assert pool.choose(registry, Target(Family.OPENAI, None), None, "m").pool == "llamacpp"
    tree["pools"][1]["role"] = role.value
    with pytest.raises(ClientFault) as refusal:
        pool.choose(world(yaml.safe_dump(tree)).registry, Target(Family.OPENAI, None), None, "m")
    assert (refusal.value.status, refusal.value.reason) == (400, "dialect_not_spoken")

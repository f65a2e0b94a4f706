"""Where a request goes."""

from __future__ import annotations

import pytest

from extproc.decide import pool
from extproc.errors import ClientFault
from extproc.model.names import SPEAKS, Engine, Family
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
    chosen = pool.choose(world().registry, Target(family, None), None)
    assert (chosen.pool, chosen.engine, chosen.schedules_by_priority) == (None, engine, False)


@pytest.mark.parametrize("family", Family)
@pytest.mark.parametrize("engine", Engine)
def test_one_pool_takes_what_its_engine_speaks(engine: Engine, family: Family) -> None:
    registry = world(pools(engine, by_priority=True)).registry
    if family in SPEAKS[engine]:
        chosen = pool.choose(registry, Target(family, None), None)
        assert (chosen.pool, chosen.engine, chosen.schedules_by_priority) == (engine.value, engine, True)
        return
    with pytest.raises(ClientFault) as refusal:
        pool.choose(registry, Target(family, None), None)
    assert (refusal.value.status, refusal.value.reason) == (400, "dialect_not_spoken")
    assert refusal.value.message == f"No configured engine speaks the {family.value} API."


def test_the_first_pool_that_speaks_the_api() -> None:
    registry = world(pools(Engine.TRITON, Engine.LLAMACPP, Engine.VLLM)).registry
    assert pool.choose(registry, Target(Family.OPENAI, None), None).pool == "llamacpp"
    assert pool.choose(registry, Target(Family.TRITON, None), None).pool == "triton"


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

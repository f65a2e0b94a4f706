"""Where a request goes: the pool its model names, else the default one. Nothing is translated between APIs."""

from __future__ import annotations

from msgspec import Struct

from extproc.errors import ClientFault
from extproc.model.names import NATURAL_ENGINE, SPEAKS, Engine
from extproc.model.values import Target
from extproc.registry import FIRST, NONE, PoolFacts, Registry

MAX_SHOWN = 100
"""Characters of a model's name that an error repeats."""


class Destination(Struct, frozen=True):
    """`pool` None = nobody configured pools: Envoy's own default route decides."""

    pool: str | None
    engine: Engine
    schedules_by_priority: bool
    fallback: str = ""  # why it is a light pool, "" = it is the request's own
    probe: bool = False  # it tries out a pool that is half open


def choose(registry: Registry, target: Target, named: str | None, model: str) -> Destination:
    """The destination; ClientFault 404 for a model nobody serves, 400 where its pool does not speak the API."""
    if not registry.pools:
        engine = NATURAL_ENGINE[target.family]
        return Destination(None, engine, registry.engine_rules(engine).schedules_by_priority)
    if named is None and registry.default_pool == NONE:
        raise _unknown_model(model)
    by_default = None if registry.default_pool == FIRST else registry.default_pool
    chosen = named or by_default
    pool = registry.pool(chosen) if chosen else registry.pool_for(target.family)
    if pool is None or target.family not in SPEAKS[pool.engine]:
        raise _unspoken(target, pool)
    return Destination(pool.name, pool.engine, pool.schedules_by_priority)


def _unknown_model(model: str) -> ClientFault:
    shown = model if 0 < len(model) <= MAX_SHOWN and model.isprintable() else "of this request"
    return ClientFault(404, "model_not_found", f"The model {shown} does not exist here.", param="model")


def _unspoken(target: Target, pool: PoolFacts | None) -> ClientFault:
    who = f"The pool of this model ({pool.engine})" if pool else "No configured engine"
    verb = "does not speak" if pool else "speaks"
    return ClientFault(400, "dialect_not_spoken", f"{who} {verb} the {target.family} API.")

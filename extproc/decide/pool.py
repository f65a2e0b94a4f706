"""Where a request goes: the pool its model names, else the first that speaks its API."""

from __future__ import annotations

from msgspec import Struct

from extproc.errors import ClientFault
from extproc.model.names import NATURAL_ENGINE, SPEAKS, Engine
from extproc.model.values import Target
from extproc.registry import PoolFacts, Registry


class Destination(Struct, frozen=True):
    """`pool` None = nobody configured pools: Envoy's own default route decides."""

    pool: str | None
    engine: Engine
    schedules_by_priority: bool


def choose(registry: Registry, target: Target, named: str | None) -> Destination:
    """The destination; ClientFault 400 where no pool's engine speaks the request's API."""
    pool = registry.pool(named) if named else registry.pool_for(target.family)
    if pool is not None and target.family in SPEAKS[pool.engine]:
        return Destination(pool.name, pool.engine, pool.schedules_by_priority)
    if registry.pools:
        raise _unspoken(target, pool)
    engine = NATURAL_ENGINE[target.family]
    return Destination(None, engine, registry.engine_rules(engine).schedules_by_priority)


def _unspoken(target: Target, pool: PoolFacts | None) -> ClientFault:
    who = f"The pool of this model ({pool.engine})" if pool else "No configured engine"
    verb = "does not speak" if pool else "speaks"
    return ClientFault(400, "dialect_not_spoken", f"{who} {verb} the {target.family} API.")

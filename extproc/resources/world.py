"""All that one kind of Envoy is to know: clusters, endpoint assignments, routes and runtime.

What only a new config changes is built once (`fixed`) and handed on as the same objects; endpoints are built anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

from msgspec import Struct

from extproc.model.xds import Kind, Resource, Resources
from extproc.resources.clusters import assignment, eds_cluster
from extproc.resources.plan import EngineCluster, Plan
from extproc.resources.routes import lay_routes
from extproc.resources.template import Node, connection_manager, copy, get

ROUTES, RUNTIME = "llm", "llm_runtime"
PRIORITIES = ("default", "high")
NO_LIMITS: Mapping[str, int] = {}


class Fixed(Struct, frozen=True):
    """Everything but endpoints, by name."""

    clusters: Mapping[str, Resource]
    routes: Mapping[str, Resource]
    runtime: Mapping[str, Resource]


def fixed(template: Node, plan: Plan) -> Fixed:
    """Without engines there is nothing: an Envoy is told nothing rather than to have no routes."""
    if not plan.engines:
        return Fixed({}, {}, {})
    examples: list[Node] = get(template, "static_resources", "clusters")
    routes = copy(get(connection_manager(template), "route_config"))
    lay_routes(routes, plan)
    return Fixed(
        clusters={each.name: eds_cluster(examples, each, plan.ca_file) for each in plan.engines},
        routes={ROUTES: {**routes, "name": ROUTES}},
        runtime={RUNTIME: {"name": RUNTIME, "layer": runtime(plan.engines)}},
    )


def resources(
    parts: Fixed, engines: Iterable[EngineCluster], *, generation: int, limits: Mapping[str, int] = NO_LIMITS
) -> Resources:
    """`engines` are those of the plan, with the endpoints of this moment. `limits`: requests of DEFAULT priority
    that a cluster takes, where that is not what the plan says."""
    assignments = {each.name: assignment(each) for each in engines}
    layers = _limited(parts.runtime, limits) if limits else parts.runtime
    by_kind = {Kind.CDS: parts.clusters, Kind.EDS: assignments, Kind.RDS: parts.routes, Kind.RTDS: layers}
    return Resources(generation, by_kind)


def _limited(layers: Mapping[str, Resource], limits: Mapping[str, int]) -> dict[str, Resource]:
    """Critical requests have a breaker of their own, which stays as it is."""
    keys = {_limit_key(name, "default"): limit for name, limit in limits.items()}
    return {
        name: {
            **resource,
            "layer": {**resource["layer"], **{key: keys[key] for key in keys if key in resource["layer"]}},
        }
        for name, resource in layers.items()
    }


def runtime(engines: Iterable[EngineCluster]) -> Node:
    """Runtime keys, all of them each time: Envoy takes the layer as a whole.

    The limits of the circuit breakers stand in the clusters too. Here they can change without a new cluster.
    """
    return dict(chain.from_iterable(_limits(each) for each in engines))


def _limits(engine: EngineCluster) -> Iterable[tuple[str, int]]:
    for priority in PRIORITIES:
        yield _limit_key(engine.name, priority), engine.max_requests


def _limit_key(cluster: str, priority: str) -> str:
    return f"circuit_breakers.{cluster}.{priority}.max_requests"

"""The template's routes with a deployment's pools in them."""

from __future__ import annotations

from extproc.model.names import SPEAKS, Engine, Family
from extproc.resources.plan import EngineCluster, Plan
from extproc.resources.template import Node, get, named

ROUTES_OF_A_FAMILY = ("", "-critical", "-upgrade")
USAGE = "llm.usage"
GRPC_ROUTES = ("triton-grpc-critical", "triton-grpc")

BODY_MARGIN_BYTES = 64 * 1024
"""Envoy's limit counts the rewritten body too; the sidecar's own limit must be met first."""


def family_clusters(engines: tuple[EngineCluster, ...]) -> dict[Family, str]:
    """Where each family goes while the sidecar names no pool: to the first that speaks it, else the first."""
    spoken = [each for each in engines if not each.http2]
    return {
        family: next((each for each in spoken if family in SPEAKS[each.engine]), spoken[0]).name
        for family in Family
    }


def grpc_cluster(engines: tuple[EngineCluster, ...]) -> str | None:
    """Where Triton's gRPC goes."""
    return next((each.name for each in engines if each.http2 and each.engine is Engine.TRITON), None)


def lay_routes(config: Node, plan: Plan) -> None:
    """Change a route configuration of the template in place."""
    host = named(get(config, "virtual_hosts"), "llm")
    host["request_body_buffer_limit"] = plan.max_body_bytes + BODY_MARGIN_BYTES
    routes: list[Node] = get(host, "routes")
    families = family_clusters(plan.engines)
    for family, cluster in families.items():
        for kind in ROUTES_OF_A_FAMILY:
            get(named(routes, family + kind), "route")["cluster"] = cluster
    _lay_usage(routes, enabled=plan.usage)
    _lay_grpc(routes, grpc_cluster(plan.engines))
    unjudged = {**get(named(routes, Family.LLAMACPP), "route"), "cluster": plan.engines[0].name}
    unknown = named(routes, "unknown")
    if plan.unknown_paths == "pass":
        unknown.pop("direct_response", None)
        unknown.pop("response_headers_to_add", None)
        unknown["route"] = dict(unjudged)
    at = routes.index(unknown)
    routes[at:at] = [_extra_route(number, path, unjudged) for number, path in enumerate(plan.extra_paths, 1)]
    if any(engine.rewrites_host for engine in plan.engines):
        for route in (each["route"] for each in routes if "route" in each):
            route["auto_host_rewrite"] = True


def _lay_usage(routes: list[Node], *, enabled: bool) -> None:
    for each in routes:
        observer = each.get("typed_per_filter_config", {}).get(USAGE)
        if observer is not None:
            observer["disabled"] = not enabled


def _lay_grpc(routes: list[Node], cluster: str | None) -> None:
    for name in GRPC_ROUTES:
        route = named(routes, name)
        if cluster is None:
            routes.remove(route)
        else:
            get(route, "route")["cluster"] = cluster


def _extra_route(number: int, path: str, unjudged: Node) -> Node:
    match = {"prefix": path[:-1]} if path.endswith("*") else {"path": path}
    return {"name": f"extra-{number}", "match": match, "route": dict(unjudged)}

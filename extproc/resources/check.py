"""Whether Envoy would take these resources, and whether traffic would still arrive somewhere.

What is refused here is not published. Left to Envoy, a mistake in one cluster is a refusal of all of them, and a
route to a cluster that is not there is accepted and answers 503.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from extproc.errors import Problem
from extproc.model.topology import MAX_PORT
from extproc.model.xds import Kind, Resource, Resources, assignment_name

MAX_WEIGHT_SUM = 2**32 - 1
ALLOWED_WEIGHT = f"expected an integer from 1; the sum is at most {MAX_WEIGHT_SUM}"
DENOMINATORS = ("HUNDRED", "TEN_THOUSAND", "MILLION")
HEALTH = ("UNKNOWN", "HEALTHY", "UNHEALTHY", "DRAINING", "TIMEOUT", "DEGRADED")


def check(resources: Resources, static_clusters: frozenset[str] = frozenset()) -> tuple[Problem, ...]:
    """Everything that is wrong, with its place and what is allowed there; empty where nothing is.

    `static_clusters`: those of Envoy's own bootstrap, which routes may name as well.
    """
    clusters, assignments = resources.of(Kind.CDS), resources.of(Kind.EDS)
    return (
        *_clusters(clusters),
        *_pairs(clusters, assignments),
        *_each(assignments, "endpoints", _assignment),
        *_routes(resources.of(Kind.RDS), clusters.keys() | static_clusters),
        *_each(resources.of(Kind.RTDS), "runtime", _layer),
    )


def _each(
    resources: Mapping[str, Resource], word: str, look: Callable[[str, Resource], Iterator[Problem]]
) -> Iterator[Problem]:
    for name, resource in resources.items():
        yield from look(f"{word}/{name}", resource)


def _clusters(clusters: Mapping[str, Resource]) -> Iterator[Problem]:
    if not clusters:
        yield Problem("clusters", "expected at least one: Envoy would drop all it has")
    for name, cluster in clusters.items():
        if not name or cluster.get("name") != name:
            yield Problem(f"clusters/{name}.name", "expected the name the cluster is kept under")


def _pairs(clusters: Mapping[str, Resource], assignments: Mapping[str, Resource]) -> Iterator[Problem]:
    """A cluster without assignment waits for one, and holds back all that comes after it."""
    asked = {assignment_name(name, cluster) for name, cluster in clusters.items()}
    wanted = {name for name in asked if name is not None}
    for name in sorted(wanted - assignments.keys()):
        yield Problem(f"endpoints/{name}", "missing: its cluster would wait for it; an empty one is allowed")
    for name in sorted(assignments.keys() - wanted):
        yield Problem(f"endpoints/{name}", "expected a cluster of type EDS that asks for it")


def _assignment(path: str, assignment: Resource) -> Iterator[Problem]:
    if assignment.get("cluster_name") != path.partition("/")[2]:
        yield Problem(f"{path}.cluster_name", "expected the name the assignment is kept under")
    seen: Counter[tuple[int, str]] = Counter()
    for group_at, group in enumerate(assignment.get("endpoints", ())):
        at = f"{path}.endpoints[{group_at}]"
        endpoints = group.get("lb_endpoints", ())
        total = 0
        for index, endpoint in enumerate(endpoints):
            weight = endpoint.get("load_balancing_weight", 1)
            place = (group.get("priority", 0), repr((endpoint.get("endpoint") or {}).get("address")))
            seen[place] += 1
            total += weight if type(weight) is int else 0
            problems = _endpoint(endpoint, weight, repeated=seen[place] > 1)
            yield from (Problem(f"{at}.lb_endpoints[{index}].{key}", why) for key, why in problems)
        if total > MAX_WEIGHT_SUM:
            yield Problem(f"{at}.lb_endpoints", f"weights sum to {total}, at most {MAX_WEIGHT_SUM} is allowed")


def _endpoint(endpoint: Resource, weight: object, *, repeated: bool) -> Iterator[tuple[str, str]]:
    if type(weight) is not int or weight < 1:
        yield "load_balancing_weight", ALLOWED_WEIGHT
    if endpoint.get("health_status", "UNKNOWN") not in HEALTH:
        yield "health_status", f"expected one of {', '.join(HEALTH)}"
    address = (endpoint.get("endpoint") or {}).get("address") or {}
    if repeated:
        yield "endpoint.address", "is there already: one address is one endpoint"
    if "pipe" in address:
        return
    socket = address.get("socket_address") or {}
    if not isinstance(host := socket.get("address"), str) or not host:
        yield "endpoint.address.socket_address.address", "expected an IP address"
    if type(port := socket.get("port_value")) is not int or not 1 <= port <= MAX_PORT:
        yield "endpoint.address.socket_address.port_value", f"expected a port from 1 to {MAX_PORT}"


def _routes(configs: Mapping[str, Resource], known: Iterable[str]) -> Iterator[Problem]:
    clusters = frozenset(known)
    for name, config in configs.items():
        if config.get("name") != name:
            yield Problem(f"routes/{name}.name", "expected the name the routes are kept under")
        for host_at, host in enumerate(config.get("virtual_hosts", ())):
            for route_at, route in enumerate(host.get("routes", ())):
                place = route.get("name") or route_at
                path = f"routes/{name}.virtual_hosts[{host_at}].routes[{place}].route"
                yield from _action(path, route.get("route") or {}, clusters)


def _action(path: str, action: Resource, clusters: frozenset[str]) -> Iterator[Problem]:
    if (weighted := action.get("weighted_clusters")) is not None:
        yield from _weighted(f"{path}.weighted_clusters", weighted.get("clusters", ()), clusters)
    named = [("cluster", action.get("cluster"))]
    mirrors = action.get("request_mirror_policies", ())
    named += [(f"request_mirror_policies[{at}].cluster", each.get("cluster")) for at, each in enumerate(mirrors)]
    for key, name in named:
        if name is not None and name not in clusters:
            yield Problem(f"{path}.{key}", _unknown(name, clusters))


def _weighted(path: str, shares: Iterable[Resource], clusters: frozenset[str]) -> Iterator[Problem]:
    """A share may be 0, but not all of them."""
    total = 0
    for at, share in enumerate(shares):
        name, weight = share.get("name"), share.get("weight", 0)
        if name not in clusters and "cluster_header" not in share:
            yield Problem(f"{path}.clusters[{at}].name", _unknown(name, clusters))
        if type(weight) is not int or weight < 0:
            yield Problem(f"{path}.clusters[{at}].weight", "expected an integer from 0")
        else:
            total += weight
    if not 1 <= total <= MAX_WEIGHT_SUM:
        yield Problem(path, f"weights sum to {total}, expected 1 to {MAX_WEIGHT_SUM}")


def _unknown(name: object, clusters: frozenset[str]) -> str:
    return f"no cluster is called {name}; there are {', '.join(sorted(clusters)) or 'none'}"


def _layer(path: str, resource: Resource) -> Iterator[Problem]:
    if resource.get("name") != path.partition("/")[2]:
        yield Problem(f"{path}.name", "expected the name the layer is kept under")
    layer = resource.get("layer", {})
    if not isinstance(layer, Mapping):
        yield Problem(f"{path}.layer", "expected an object")
        return
    for key, value in layer.items():
        if not _is_runtime_value(value):
            yield Problem(f"{path}.layer.{key}", "expected a number from 0, true, false, a text or a percentage")


def _is_runtime_value(value: Any) -> bool:
    """Envoy ignores what it cannot use here, without a word."""
    if isinstance(value, Mapping):
        numerator = value.get("numerator", 0)
        known = value.keys() <= {"numerator", "denominator"} and value.get("denominator", "HUNDRED") in DENOMINATORS
        return known and type(numerator) is int and 0 <= numerator < 2**32
    if isinstance(value, bool | str):
        return True
    return isinstance(value, int | float) and 0 <= value < float("inf")

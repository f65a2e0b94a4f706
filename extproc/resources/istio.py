"""The pieces of the template that a proxy of an Istio mesh needs, as one EnvoyFilter.

The mesh keeps its listeners, routes and certificates; added are the sidecar's clusters, the judging filter and what
stands around it, each copied from the template, so that the two never differ. What routes of our own do elsewhere
(pools by header, refused management paths, local replies) is for the mesh's routes: docs/istio.md says how.
"""

from __future__ import annotations

from enum import StrEnum

from extproc.resources.bootstrap import EXT_PROC, following
from extproc.resources.plan import Plan
from extproc.resources.routes import BODY_MARGIN_BYTES, USAGE
from extproc.resources.template import CONNECTION_MANAGER, Node, connection_manager, copy, get, named

ROUTER = "envoy.filters.http.router"
AROUND = ("strip-caller-parameters", "engine-load")
GUARD = "early_header_mutation_extensions"
REMOVED = "request_headers_to_remove"


class Proxy(StrEnum):
    """Which proxies of the mesh judge: those in front of an engine, in its pod, or a gateway."""

    INBOUND = "inbound"
    GATEWAY = "gateway"


CONTEXTS = {Proxy.INBOUND: "SIDECAR_INBOUND", Proxy.GATEWAY: "GATEWAY"}


def envoy_filter(template: Node, overlay: Node, plan: Plan, *, proxy: Proxy, port: int) -> Node:
    """For pods labelled `extproc: enabled`. `port`: the engine's in its pod, or the gateway's listener's."""
    config = following(template, overlay, plan)
    manager = connection_manager(config)
    listener = _listener(proxy, port)
    patches = [
        *(_cluster(proxy, each) for each in get(config, "static_resources", "clusters")),
        _patch("NETWORK_FILTER", "MERGE", listener, _around_filters(manager)),
        *(
            _patch("HTTP_FILTER", "INSERT_BEFORE", _before_router(listener), each)
            for each in _filters(manager, plan)
        ),
        *_routes(template, plan, proxy, port),
    ]
    return {
        "apiVersion": "networking.istio.io/v1alpha3",
        "kind": "EnvoyFilter",
        "metadata": {"name": f"extproc-{proxy.value}", "labels": {"app.kubernetes.io/name": "extproc"}},
        "spec": {"workloadSelector": {"labels": {"extproc": "enabled"}}, "configPatches": patches},
    }


def _patch(applied_to: str, operation: str, match: Node, value: Node) -> Node:
    return {"applyTo": applied_to, "match": copy(match), "patch": {"operation": operation, "value": value}}


def _cluster(proxy: Proxy, cluster: Node) -> Node:
    return _patch("CLUSTER", "ADD", {"context": CONTEXTS[proxy]}, cluster)


def _listener(proxy: Proxy, port: int) -> Node:
    """One port alone: a pod's other ports, its metrics among them, are not judged."""
    chain: Node = {"filter": {"name": CONNECTION_MANAGER}}
    if proxy is Proxy.INBOUND:
        listener: Node = {"filterChain": {"destinationPort": port, **chain}}
    else:
        listener = {"portNumber": port, "filterChain": chain}
    return {"context": CONTEXTS[proxy], "listener": listener}


def _before_router(listener: Node) -> Node:
    match = copy(listener)
    match["listener"]["filterChain"]["filter"]["subFilter"] = {"name": ROUTER}
    return match


def _around_filters(manager: Node) -> Node:
    """What the connection manager itself does: no spoofed header, long silences, latencies to the sidecar."""
    fields = (GUARD, "normalize_path", "merge_slashes", "path_with_escaped_slashes_action", "stream_idle_timeout")
    value = {
        "@type": get(manager, "@type"),
        **{each: get(manager, each) for each in fields},
        "access_log": [named(get(manager, "access_log"), "latency")],
    }
    return {"name": CONNECTION_MANAGER, "typed_config": value}


def _filters(manager: Node, plan: Plan) -> list[Node]:
    """In their order before the router. On for every route: those of a mesh do not name them."""
    names = (EXT_PROC, *((USAGE,) if plan.usage else ()), *AROUND)
    found = [copy(named(get(manager, "http_filters"), name)) for name in names]
    for each in found:
        each.pop("disabled", None)
    return found


def _routes(template: Node, plan: Plan, proxy: Proxy, port: int) -> list[Node]:
    route = {"name": f"inbound|{port}||"} if proxy is Proxy.INBOUND else {"portNumber": port}
    match = {"context": CONTEXTS[proxy], "routeConfiguration": route}
    shipped = get(connection_manager(template), "route_config")
    bounded = {"request_body_buffer_limit": plan.max_body_bytes + BODY_MARGIN_BYTES}
    return [
        _patch("ROUTE_CONFIGURATION", "MERGE", match, {REMOVED: get(shipped, REMOVED)}),
        _patch("VIRTUAL_HOST", "MERGE", match, bounded),
    ]

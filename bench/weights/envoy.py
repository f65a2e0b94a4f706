"""One Envoy for all variants: a listener and a cluster each, alike in everything but how they balance.

Outlier detection is in none of them but the cluster that the whole sidecar makes. It would eject an endpoint that
runs out of memory ten times in a row, from round robin too, and the comparison is of balancing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

Node = dict[str, Any]

ROUND_ROBIN, ROUND_ROBIN_AGAIN, LEAST_REQUEST, OURS = "round robin", "round robin A/A", "least request", "ours"
NAMES = (ROUND_ROBIN, ROUND_ROBIN_AGAIN, LEAST_REQUEST, OURS)

CLUSTERS = {ROUND_ROBIN: "rr", ROUND_ROBIN_AGAIN: "rr-again", LEAST_REQUEST: "lr", OURS: "ours"}
POLICIES = {ROUND_ROBIN: "ROUND_ROBIN", ROUND_ROBIN_AGAIN: "ROUND_ROBIN", LEAST_REQUEST: "LEAST_REQUEST"}

MANY = 100_000


class Variant(Struct, frozen=True):
    """`port`: Envoy's listener; `engines`: ports of its own endpoints."""

    name: str
    port: int
    engines: tuple[int, ...]


class Fragment(Struct, frozen=True):
    """What ours adds to Envoy's config: clusters, the listener's access log, and keys at the top."""

    clusters: Sequence[Node] = ()
    access_log: Sequence[Node] = ()
    top: Node = {}


def bootstrap(variants: Iterable[Variant], admin_path: str, ours: Fragment) -> Node:
    variants = tuple(variants)
    static = [_static(each) for each in variants if each.name != OURS]
    return {
        "node": {"id": "bench", "cluster": "bench"},
        **ours.top,
        "admin": {"address": {"pipe": {"path": admin_path}}},
        "static_resources": {
            "listeners": [_listener(each, ours.access_log if each.name == OURS else ()) for each in variants],
            "clusters": [*static, *ours.clusters],
        },
    }


def cluster(name: str) -> Node:
    most = dict.fromkeys(("max_connections", "max_requests", "max_pending_requests"), MANY)
    return {
        "name": name,
        "connect_timeout": "2s",
        "circuit_breakers": {"thresholds": [most]},
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
    }


def grpc_cluster(name: str, pipe: str) -> Node:
    """Over a unix socket."""
    http2 = {
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
    return {
        **cluster(name),
        "type": "STATIC",
        "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2},
        "load_assignment": assignment(name, [({"pipe": {"path": pipe}}, 1)]),
    }


def assignment(name: str, endpoints: Iterable[tuple[Node, int]]) -> Node:
    """Addresses with weights; weight 0 is published as DRAINING."""
    lb_endpoints = [
        {"endpoint": {"address": address}, "load_balancing_weight": max(1, weight)}
        | ({} if weight else {"health_status": "DRAINING"})
        for address, weight in endpoints
    ]
    return {"cluster_name": name, "endpoints": [{"lb_endpoints": lb_endpoints}]}


def tcp(port: int) -> Node:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def grpc_access_log(cluster_name: str) -> Node:
    """As the product's own Envoy config has it."""
    return {
        "name": "latency",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig",
            "common_config": {
                "log_name": "llm",
                "transport_api_version": "V3",
                "grpc_service": {"envoy_grpc": {"cluster_name": cluster_name}},
                "buffer_flush_interval": "0.25s",
                "buffer_size_bytes": 65536,
            },
        },
    }


def _static(variant: Variant) -> Node:
    name = CLUSTERS[variant.name]
    endpoints = [(tcp(port), 1) for port in variant.engines]
    return {
        **cluster(name),
        "type": "STATIC",
        "lb_policy": POLICIES[variant.name],
        "load_assignment": assignment(name, endpoints),
    }


def _listener(variant: Variant, access_log: Sequence[Node]) -> Node:
    route = {"match": {"prefix": "/"}, "route": {"cluster": CLUSTERS[variant.name], "timeout": "0s"}}
    host = {"name": "all", "domains": ["*"], "routes": [route]}
    router = {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}
    manager = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3"
        ".HttpConnectionManager",
        "stat_prefix": CLUSTERS[variant.name],
        "access_log": list(access_log),
        # The cluster of ours may come later than the route.
        "route_config": {"validate_clusters": False, "virtual_hosts": [host]},
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": router}],
    }
    chain = {"filters": [{"name": "http", "typed_config": manager}]}
    return {"name": CLUSTERS[variant.name], "address": tcp(variant.port), "filter_chains": [chain]}

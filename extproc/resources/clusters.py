"""Clusters and endpoint assignments of engines, after the template's examples: HTTP/1.1, and HTTP/2 for gRPC."""

from __future__ import annotations

from collections.abc import Iterable

from extproc.model.names import Engine
from extproc.model.topology import is_ip
from extproc.resources.plan import EngineCluster, Served
from extproc.resources.template import Node, copy, get, named

EXAMPLE, GRPC_EXAMPLE = "engine-1", "engine-1-grpc"

ADS: Node = {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "2s"}

IDLE_S: dict[Engine, str] = {Engine.VLLM: "4s", Engine.LLAMACPP: "4s", Engine.TRITON: "60s"}
"""How long an idle connection is kept: shorter than uvicorn's and llama.cpp's own 5 s, so that they never close
what is about to be used; Triton closes none by itself."""


def static_cluster(clusters: list[Node], plan: EngineCluster, ca_file: str) -> Node:
    """A cluster with its endpoints in it."""
    cluster = _cluster(clusters, plan, ca_file)
    cluster["load_assignment"] = assignment(plan)
    return {**cluster, **discovery(each.host for each in plan.endpoints)}


def discovery(hosts: Iterable[str]) -> Node:
    """How a static cluster finds these hosts: names are looked up by Envoy."""
    if all(map(is_ip, hosts)):
        return {"type": "STATIC"}
    return {"type": "STRICT_DNS", "dns_lookup_family": "V4_PREFERRED"}


def eds_cluster(clusters: list[Node], plan: EngineCluster, ca_file: str) -> Node:
    """A cluster whose endpoints come by themselves, so that a weight never replaces it and its connections."""
    cluster = _cluster(clusters, plan, ca_file)
    del cluster["load_assignment"]
    return {**cluster, "type": "EDS", "eds_cluster_config": {"eds_config": ADS}}


def assignment(plan: EngineCluster) -> Node:
    endpoints = [_lb_endpoint(each) for each in plan.endpoints]
    return {"cluster_name": plan.name, "endpoints": [{"lb_endpoints": endpoints}] if endpoints else []}


def _lb_endpoint(served: Served) -> Node:
    endpoint: Node = {
        "address": {"socket_address": {"address": served.host.strip("[]"), "port_value": served.port}}
    }
    if served.hostname:
        endpoint["hostname"] = served.hostname
    status = {"health_status": "DRAINING"} if served.draining else {}
    return {"endpoint": endpoint, "load_balancing_weight": served.weight, **status}


def _cluster(clusters: list[Node], plan: EngineCluster, ca_file: str) -> Node:
    cluster = copy(named(clusters, GRPC_EXAMPLE if plan.http2 else EXAMPLE))
    cluster.update(name=plan.name, lb_policy=plan.lb_policy)
    if plan.lb_policy != "LEAST_REQUEST":
        cluster.pop("least_request_lb_config", None)
    for threshold in get(cluster, "circuit_breakers", "thresholds"):
        threshold.update(
            dict.fromkeys(("max_connections", "max_requests", "max_pending_requests"), plan.max_requests)
        )
    options = next(iter(get(cluster, "typed_extension_protocol_options").values()))
    get(options, "common_http_protocol_options")["idle_timeout"] = IDLE_S[plan.engine]
    if plan.tls_name:
        cluster["transport_socket"] = _tls(plan.tls_name, ca_file, "h2" if plan.http2 else "http/1.1")
    return cluster


def _tls(name: str, ca_file: str, protocol: str) -> Node:
    """Chain and name are both checked: without the name, any certificate of any site would do."""
    san_type = "IP_ADDRESS" if is_ip(name) else "DNS"
    return {
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            **({} if san_type == "IP_ADDRESS" else {"sni": name}),
            "common_tls_context": {
                "alpn_protocols": [protocol],
                "validation_context": {
                    "trusted_ca": {"filename": ca_file},
                    "match_typed_subject_alt_names": [{"san_type": san_type, "matcher": {"exact": name}}],
                },
            },
        },
    }

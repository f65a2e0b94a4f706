"""Small deployments, and where things stand in a configuration of Envoy."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from extproc.model.names import Engine
from extproc.resources.bootstrap import render
from extproc.resources.plan import EngineCluster, Pipe, Plan, Served
from extproc.resources.template import load_template

VLLM = EngineCluster("chat", Engine.VLLM, (Served("10.0.0.1", 8000),))
TRITON = EngineCluster("triton", Engine.TRITON, (Served("10.0.0.2", 8001),))
TRITON_GRPC = EngineCluster("triton-grpc", Engine.TRITON, (Served("10.0.0.2", 8011),), http2=True)
LLAMA = EngineCluster("light", Engine.LLAMACPP, (Served("10.0.0.3", 8002),))
PLAN = Plan(engines=(TRITON, LLAMA, VLLM), ext_proc=(Pipe("/run/extproc/extproc.sock"),))

MANAGER = ("static_resources", "listeners", 0, "filter_chains", 0, "filters", 0, "typed_config")


def at(node: Any, *path: str | int) -> Any:
    for key in path:
        node = node[key]
    return node


def rendered(**changes: Any) -> dict[str, Any]:
    return render(load_template(), replace(PLAN, **changes))


def at_host(addresses: tuple[str, ...], **changes: Any) -> EngineCluster:
    """The vLLM pool at these hosts."""
    return replace(VLLM, endpoints=tuple(Served(each, 8000) for each in addresses), **changes)


def routes(config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By name, in order."""
    return by_name(at(config, *MANAGER, "route_config", "virtual_hosts", 0, "routes"))


def clusters(config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By name, in order."""
    return by_name(at(config, "static_resources", "clusters"))


def by_name(nodes: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in nodes}


def endpoints(cluster: dict[str, Any]) -> list[dict[str, Any]]:
    """The weighted endpoints of an assignment, or of a cluster that holds one."""
    found: list[dict[str, Any]] = at(cluster.get("load_assignment", cluster), "endpoints", 0, "lb_endpoints")
    return found


def endpoint(cluster: dict[str, Any]) -> dict[str, Any]:
    """The one endpoint of a cluster."""
    (found,) = endpoints(cluster)
    assert isinstance(found["endpoint"], dict)
    return found["endpoint"]

"""The bootstrap Envoy starts from: by itself, following the control plane, or following files it left behind."""

from __future__ import annotations

from extproc.errors import OurFault
from extproc.resources.clusters import EXAMPLE, GRPC_EXAMPLE, discovery, static_cluster
from extproc.resources.plan import Plan, Tcp
from extproc.resources.routes import lay_routes
from extproc.resources.template import Node, address, connection_manager, copy, get, named

SIDECAR_CLUSTERS = ("llm_ext_proc", "llm_control")
EXT_PROC = "envoy.filters.http.ext_proc"


def render(template: Node, plan: Plan) -> Node:
    """The template with `plan` laid over it, all static; the template itself is not touched."""
    _check(plan)
    config = _base(template, plan)
    clusters: list[Node] = get(config, "static_resources", "clusters")
    engines = [static_cluster(clusters, each, plan.ca_file) for each in plan.engines]
    get(config, "static_resources")["clusters"] = [*engines, *_sidecars(clusters)]
    lay_routes(get(connection_manager(config), "route_config"), plan)
    return config


def following(template: Node, overlay: Node, plan: Plan) -> Node:
    """A bootstrap whose clusters, endpoints, routes and runtime come from the control plane."""
    config = _base(template, plan)
    clusters: list[Node] = get(config, "static_resources", "clusters")
    get(config, "static_resources")["clusters"] = _sidecars(clusters)
    manager = connection_manager(config)
    del manager["route_config"]
    overlay = copy(overlay)
    manager["rds"] = get(overlay, "rds")
    config["dynamic_resources"] = get(overlay, "dynamic_resources")
    get(config, "layered_runtime")["layers"] += get(overlay, "layered_runtime", "layers")
    return config


def from_files(template: Node, overlay: Node, plan: Plan, folder: str) -> Node:
    """The same from the files the control plane keeps: serves although nobody has ever answered."""
    config = following(template, overlay, plan)
    config["dynamic_resources"] = {"cds_config": _file(folder, "cds.json")}
    get(connection_manager(config), "rds")["config_source"] = _file(folder, "rds.json")
    for layer in get(config, "layered_runtime", "layers"):
        if "rtds_layer" in layer:
            layer["rtds_layer"]["rtds_config"] = _file(folder, "rtds.json")
    return config


def _file(folder: str, name: str) -> Node:
    source = {"path": f"{folder}/{name}", "watched_directory": {"path": folder}}
    return {"path_config_source": source, "resource_api_version": "V3", "initial_fetch_timeout": "2s"}


def _base(template: Node, plan: Plan) -> Node:
    config = copy(template)
    get(config, "admin")["address"] = address(plan.admin)
    named(get(config, "static_resources", "listeners"), "llm")["address"] = address(plan.listener)
    _lay_sidecar(get(config, "static_resources", "clusters"), plan)
    manager = connection_manager(config)
    get(named(get(manager, "access_log"), "requests"), "typed_config")["path"] = plan.access_log_path
    _lay_ext_proc(manager, plan)
    return config


def _sidecars(clusters: list[Node]) -> list[Node]:
    return [named(clusters, name) for name in SIDECAR_CLUSTERS]


def _check(plan: Plan) -> None:
    names = [each.name for each in plan.engines]
    if not [each for each in plan.engines if not each.http2]:
        raise OurFault("envoy_plan", "no engine is configured: Envoy has nowhere to send requests")
    if len(set(names)) < len(names) or set(names) & set(SIDECAR_CLUSTERS):
        raise OurFault("envoy_plan", f"engine names must differ from each other and from {SIDECAR_CLUSTERS}")
    if bad := [path for path in plan.extra_paths if not path.startswith("/")]:
        raise OurFault("envoy_plan", f"extra_paths must start with /: {bad}")


def _lay_sidecar(clusters: list[Node], plan: Plan) -> None:
    keepalive = get(named(clusters, EXAMPLE), "upstream_connection_options")
    named(clusters, GRPC_EXAMPLE)  # a template without it is no template of ours
    for cluster, places in zip(_sidecars(clusters), (plan.ext_proc, (plan.control,)), strict=True):
        endpoints = [{"endpoint": {"address": address(where)}} for where in places]
        get(cluster, "load_assignment")["endpoints"] = [{"lb_endpoints": endpoints}]
        if hosts := [where.host for where in places if isinstance(where, Tcp)]:
            # A unix socket breaks by itself when its process dies.
            cluster["upstream_connection_options"] = copy(keepalive)
            cluster.update(discovery(hosts))


def _lay_ext_proc(manager: Node, plan: Plan) -> None:
    filters: list[Node] = get(manager, "http_filters")
    ext_proc = get(named(filters, EXT_PROC), "typed_config")
    ext_proc["failure_mode_allow"] = plan.fail_open
    allowed: list[Node] = get(ext_proc, "forward_rules", "allowed_headers", "patterns")
    allowed += [{"exact": name.lower()} for name in plan.extra_allowed_headers]

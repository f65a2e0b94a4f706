"""The EnvoyFilters laid over proxies as a mesh configures them: the real Envoy takes the result and judges by it."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from extproc.cli.envoy_binary import find_envoy
from extproc.deployment import plan
from extproc.resources.istio import Proxy, envoy_filter
from extproc.resources.plan import Plan, Tcp
from extproc.resources.template import address, load_overlay, load_template
from extproc.settings import load
from tests.e2e.running import Engine, Sidecar, until
from tests.real_envoy import RealEnvoy

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


class Pod:
    """An engine, the sidecar and a mesh's proxy in front of them."""

    def __init__(self, folder: Path) -> None:
        self.engine = Engine(folder)
        self.engine_port = int(self.engine.url.rpartition(":")[2])
        tree = yaml.safe_load((MESH / "extproc.yaml").read_text(encoding="utf-8"))
        tree["pools"][0]["endpoints"] = [self.engine.url]
        tree["listeners"] = {"metrics": None}
        config = folder / "extproc.yaml"
        config.write_text(yaml.safe_dump(tree))
        self.sidecar = Sidecar(config, folder)
        self.envoy = RealEnvoy(plan(load(config.read_bytes()), folder, ()), made=self.made)

    def made(self, wanted: Plan) -> dict[str, Any]:
        port = self.engine_port
        patches = envoy_filter(load_template(), load_overlay(), wanted, proxy=Proxy.INBOUND, port=port)
        config = laid_over(mesh_proxy(port), patches["spec"]["configPatches"])
        config["admin"] = {"address": address(wanted.admin)}
        config["static_resources"]["listeners"][0]["address"] = address(wanted.listener)
        endpoint = {"endpoint": {"address": address(Tcp("127.0.0.1", port))}}
        assignment = {"cluster_name": "engine", "endpoints": [{"lb_endpoints": [endpoint]}]}
        config["static_resources"]["clusters"][0]["load_assignment"] = assignment
        return config

    def post(self, request_id: str) -> int:
        body = json.dumps({"text_input": "Where is my order #12345678?"}).encode()
        headers = {
            "x-request-id": request_id,
            "x-llm-tier": "creative",
            "x-caller-token": "t",
            "x-param-top-k": "3",
        }
        request = urllib.request.Request(f"http://127.0.0.1:{self.envoy.port}/v2/models/m/generate", body, headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)

    def stop(self) -> None:
        for each in (self.envoy, self.sidecar, self.engine):
            each.stop()


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    pod = Pod(tmp_path_factory.mktemp("pod"))
    yield pod
    pod.stop()


def test_requests_through_a_mesh_proxy_are_judged(pod: Pod) -> None:
    assert pod.post("judged") == 200

    received = pod.engine.one("judged")
    parameters = json.loads(pod.engine.body(received))["parameters"]
    assert (parameters["temperature"], parameters["max_tokens"], parameters["top_p"]) == (0.3, 120, 0.85)
    headers = received["headers"]
    assert headers["x-llm-tier"] == ["strict"], "a client's own is gone"
    assert not {"x-caller-token", "x-param-top-k"} & set(headers)


def test_latencies_reach_the_sidecar(pod: Pod) -> None:
    assert pod.post("measured") == 200

    until(lambda: pod.sidecar.count("llm_request_duration_seconds_count") > 0, what="the access log")


def test_without_the_sidecar_requests_pass_and_still_carry_no_spoofed_header(pod: Pod) -> None:
    pod.sidecar.kill()

    assert pod.post("unjudged") == 200

    received = pod.engine.one("unjudged")
    assert json.loads(pod.engine.body(received)) == {"text_input": "Where is my order #12345678?"}
    assert not {"x-llm-tier", "x-caller-token", "x-param-top-k"} & set(received["headers"])

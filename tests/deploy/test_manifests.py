"""Manifests of deploy/: valid by their schemas, and one with the template and the config they are made of."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from extproc.cli.render import istio
from extproc.resources.istio import Proxy
from extproc.resources.template import connection_manager, load_template, named
from extproc.settings import Settings, load
from tests.deploy.shapes import SCHEMAS

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
VERSIONS = ["1.29", "1.33", "1.37"]
NO_MANIFESTS = {"injection.yaml", "extproc.yaml"}
FILES = sorted(
    path
    for folder in ("kubernetes", "mesh/istio", "mesh/envoy-gateway")
    for path in (DEPLOY / folder).glob("*.yaml")
    if path.name not in NO_MANIFESTS
)


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


EVERY = [(path, each) for path in FILES for each in documents(path)]
OWN = [(path, each) for path, each in EVERY if each["kind"] in SCHEMAS]
CORE = [(path, each) for path, each in EVERY if each["kind"] not in SCHEMAS]


def known(given: tuple[Path, dict[str, Any]]) -> str:
    return f"{given[0].relative_to(DEPLOY)}:{given[1]['kind']}"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("given", CORE, ids=known)
def test_valid_by_the_schemas_of_kubernetes(given: tuple[Path, dict[str, Any]], version: str) -> None:
    kubernetes_validate.validate(given[1], version, strict=True)


def test_the_schemas_of_kubernetes_see_a_misspelt_field() -> None:
    (deployment,) = documents(DEPLOY / "kubernetes/deployment.yaml")
    deployment["spec"]["template"]["spec"]["containers"][0]["livenessprobe"] = {}

    with pytest.raises(kubernetes_validate.ValidationError, match="livenessprobe"):
        kubernetes_validate.validate(deployment, VERSIONS[0], strict=True)


@pytest.mark.parametrize("given", OWN, ids=known)
def test_valid_by_the_schema_of_its_kind(given: tuple[Path, dict[str, Any]]) -> None:
    jsonschema.validate(given[1], SCHEMAS[given[1]["kind"]])


@pytest.mark.parametrize(("proxy", "port"), [(Proxy.INBOUND, 8000), (Proxy.GATEWAY, 8080)])
def test_the_envoy_filters_are_what_the_command_prints(proxy: Proxy, port: int) -> None:
    shipped = (DEPLOY / f"mesh/istio/envoyfilter-{proxy}.yaml").read_text(encoding="utf-8")
    command = f"--istio {proxy} --port {port}"

    printed = istio(mesh_settings(), Path("/run/extproc"), proxy, port)

    assert command in shipped.splitlines()[0]
    assert yaml.safe_load(shipped) == yaml.safe_load(printed), f"print it anew: {command}"


def mesh_settings() -> Settings:
    return load((DEPLOY / "mesh/istio/extproc.yaml").read_bytes())


def test_the_injected_container_is_where_the_filter_looks_for_it() -> None:
    values = documents(DEPLOY / "mesh/istio/injection.yaml")[0]
    template = values["sidecarInjectorWebhook"]["templates"]["extproc"]
    native = yaml.safe_load(
        re.sub(r"\{\{- if .*?\}\}(.*?)\{\{- else \}\}.*?\{\{- end \}\}", r"\1", template, flags=re.DOTALL)
    )
    separate = yaml.safe_load(
        re.sub(r"\{\{- if .*?\{\{- else \}\}(.*?)\{\{- end \}\}", r"\1", template, flags=re.DOTALL)
    )

    for pod in (native["spec"], separate["spec"]):
        containers = {each["name"]: each for each in [*pod["initContainers"], *pod.get("containers", ())]}
        mounts = {name: {m["mountPath"] for m in each["volumeMounts"]} for name, each in containers.items()}
        assert "/run/extproc" in mounts["extproc"] & mounts["istio-proxy"]
        assert containers["extproc"]["securityContext"]["runAsGroup"] == 1337
        for each in containers.values():
            each.setdefault("image", "istio-proxy")
        whole = {
            "initContainers": pod["initContainers"],
            "containers": pod.get("containers") or [{"name": "engine", "image": "x"}],
        }
        kubernetes_validate.validate(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "p"},
                "spec": {**whole, "volumes": pod["volumes"]},
            },
            VERSIONS[1],
            strict=True,
        )
    assert mesh_settings().listeners.ext_proc == "unix:/run/extproc/extproc.sock"


def test_the_config_in_the_config_map_is_valid_and_sits_in_the_volume() -> None:
    (config_map,) = documents(DEPLOY / "kubernetes/configmap.yaml")

    settings = load(config_map["data"]["extproc.yaml"].encode())

    assert settings.listeners.ext_proc == "unix:/run/extproc/extproc.sock"
    assert settings.inference_params == load(b"").inference_params, "the template starts from the defaults"
    compose = yaml.safe_load((DEPLOY / "compose/metrics-listener.yaml").read_text(encoding="utf-8"))
    assert yaml.safe_load(config_map["data"]["metrics-listener.yaml"]) == compose


def test_the_sidecar_is_a_native_one_with_probes() -> None:
    (deployment,) = documents(DEPLOY / "kubernetes/deployment.yaml")
    pod = deployment["spec"]["template"]["spec"]
    bootstrap, sidecar = pod["initContainers"]

    assert "restartPolicy" not in bootstrap
    assert sidecar["restartPolicy"] == "Always"
    assert {"startupProbe", "livenessProbe"} <= set(sidecar)
    assert {"readinessProbe", "livenessProbe"} <= set(pod["containers"][0])
    grace_s = load(b"").shutdown_grace_s
    assert pod["terminationGracePeriodSeconds"] > grace_s + 10


@pytest.mark.parametrize("path", ["kubernetes/deployment.yaml", "mesh/envoy-gateway/sidecar.yaml"])
def test_nobody_is_root_and_everything_is_locked(path: str) -> None:
    pod = documents(DEPLOY / path)[0]["spec"]["template"]["spec"]

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    for each in (*pod.get("initContainers", ()), *pod["containers"]):
        locked = each["securityContext"]
        assert locked["readOnlyRootFilesystem"] and not locked["allowPrivilegeEscalation"]
        assert locked["capabilities"] == {"drop": ["ALL"]}
        assert {"requests", "limits"} <= set(each["resources"])


def test_the_pod_monitor_names_ports_of_the_pod() -> None:
    (monitor,) = documents(DEPLOY / "kubernetes/podmonitor.yaml")
    pod = documents(DEPLOY / "kubernetes/deployment.yaml")[0]["spec"]["template"]
    ports = {
        port["name"]
        for each in (*pod["spec"]["initContainers"], *pod["spec"]["containers"])
        for port in each.get("ports", ())
    }

    assert {each["port"] for each in monitor["spec"]["podMetricsEndpoints"]} <= ports
    assert monitor["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()


def test_kustomize_takes_every_manifest() -> None:
    (kustomization,) = documents(DEPLOY / "kubernetes/kustomization.yaml")

    assert set(kustomization["resources"]) == {path.name for path in (DEPLOY / "kubernetes").glob("*.yaml")} - {
        "kustomization.yaml"
    }


def test_envoy_gateway_says_what_the_template_says() -> None:
    policy, _, client = documents(DEPLOY / "mesh/envoy-gateway/policy.yaml")
    (given,) = policy["spec"]["extProc"]
    manager = connection_manager(load_template())
    ours = named(manager["http_filters"], "envoy.filters.http.ext_proc")["typed_config"]

    assert given["messageTimeout"] == ours["message_timeout"]
    assert given["failOpen"] == ours["failure_mode_allow"]
    assert given["processingMode"]["allowModeOverride"] == ours["allow_mode_override"]
    assert given["processingMode"]["request"]["body"].upper() == ours["processing_mode"]["request_body_mode"]
    assert given["processingMode"]["request"]["attributes"] == ours["request_attributes"]
    assert "response" not in given["processingMode"], "answers are not touched"
    assert given["metadata"]["writableNamespaces"] == ours["metadata_options"]["receiving_namespaces"]["untyped"]
    host = manager["route_config"]["virtual_hosts"][0]
    assert client["spec"]["connection"]["bufferLimit"] == host["request_body_buffer_limit"]


def test_every_file_says_what_it_is_for() -> None:
    for path in [*FILES, *(DEPLOY / "mesh/istio" / name for name in NO_MANIFESTS)]:
        assert path.read_text(encoding="utf-8").startswith("# "), path

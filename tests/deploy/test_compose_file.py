"""docker-compose.yml keeps its promises: what is published, who runs as whom, what is pinned and bounded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from extproc.alerts import INHIBIT
from extproc.cli.render import rendered
from extproc.settings import load
from extproc.standin.gpu_exporter import scenario

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = {
    "envoy": ["10000:10000"],
    "sidecar": ["127.0.0.1:9902:9902"],
    "prometheus": ["127.0.0.1:9090:9090"],
    "grafana": ["127.0.0.1:3000:3000"],
}


def read(name: str) -> dict[str, Any]:
    tree: dict[str, Any] = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
    return tree


def by_default(text: str) -> str:
    """Without variables of the environment."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


COMPOSE = read("docker-compose.yml")
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
GPU: dict[str, dict[str, Any]] = read("docker-compose.gpu.yml")["services"]
LASTING = sorted(set(SERVICES) - {"prepare", "load"})

each_service = pytest.mark.parametrize("name", sorted(SERVICES))


def test_what_is_published() -> None:
    published = {name: list(map(by_default, each["ports"])) for name, each in SERVICES.items() if "ports" in each}

    assert published == PUBLISHED
    assert not any("ports" in each for each in GPU.values())
    assert not any(each.get("network_mode") == "host" for each in SERVICES.values())


@each_service
def test_runs_as_somebody_else_than_root_on_a_root_that_is_read_only(name: str) -> None:
    service = SERVICES[name]

    assert int(service["user"].split(":")[0]) > 0
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not service.get("privileged")


@each_service
def test_is_bounded(name: str) -> None:
    service = SERVICES[name]

    assert service["mem_limit"]
    assert float(service["cpus"]) > 0
    assert service["pids_limit"] > 0
    assert service["logging"]["options"]["max-size"]


@each_service
def test_version_is_pinned(name: str) -> None:
    image = SERVICES[name]["image"]

    assert re.fullmatch(r"[a-z0-9./-]+:v?\d+[.\d]*(-[a-z]+)?", image), image


@pytest.mark.parametrize(
    "dockerfile",
    ["Dockerfile", "deploy/triton/Dockerfile", "deploy/triton/gpu.Dockerfile", "deploy/llamacpp/Dockerfile"],
)
def test_dockerfiles_start_from_a_pinned_image_and_end_as_a_user(dockerfile: str) -> None:
    text = (ROOT / dockerfile).read_text(encoding="utf-8")
    images = dict(re.findall(r"^ARG (\w+)=(\S+)$", text, re.MULTILINE))
    bases = [images.get(base.strip("${}"), base) for base in re.findall(r"^FROM (\S+)", text, re.MULTILINE)]

    assert all(re.search(r":[\d.]+-", base) for base in bases), bases
    if "gpu" not in dockerfile:  # there the compose file says who it is
        assert re.search(r"^USER \d+:\d+$", text, re.MULTILINE)


@pytest.mark.parametrize("name", LASTING)
def test_has_a_health_check_and_comes_back(name: str) -> None:
    service = SERVICES[name]

    assert service["healthcheck"]["test"][0] == "CMD"
    assert service["restart"] == "unless-stopped"


def test_dependencies_wait_for_health() -> None:
    waits = {name: each.get("depends_on", {}) for name, each in SERVICES.items()}

    assert waits["envoy"]["sidecar"] == {"condition": "service_healthy"}
    assert {"triton-1", "triton-2", "prepare"} <= set(waits["sidecar"])
    for depends in waits.values():
        for on, how in depends.items():
            ends = SERVICES[on]["restart"] == "no"
            assert how["condition"] == ("service_completed_successfully" if ends else "service_healthy")


def test_no_secret_stands_in_it() -> None:
    for name in ("docker-compose.yml", "docker-compose.gpu.yml"):
        for line in (ROOT / name).read_text(encoding="utf-8").splitlines():
            given = re.search(r"(?i)(password|secret|token|requirepass|api_key)\w*\s*[:=]\s*(?P<value>\S+)", line)
            assert given is None or given["value"].startswith("$"), line
    assert "/run/redis-auth/password" in SERVICES["redis"]["command"][-1]


def test_grafana_is_for_looking() -> None:
    environment = SERVICES["grafana"]["environment"]

    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert environment["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert environment["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"


def test_load_is_started_by_its_profile_alone() -> None:
    assert [name for name, each in SERVICES.items() if "profiles" in each] == ["load"]


def test_volumes_are_named_and_used() -> None:
    mounts = [str(mount).split(":")[0] for each in SERVICES.values() for mount in each.get("volumes", ())]
    folders = {mount for mount in mounts if mount.startswith("./")}

    assert set(mounts) - folders == set(COMPOSE["volumes"])
    assert all(
        mount.endswith(":ro") for each in SERVICES.values() for mount in each.get("volumes", ()) if mount[0] == "."
    )


def test_old_and_new_compose_read_it() -> None:
    """1.29 knows neither `name`, `include`, `develop` nor the tags `!reset` and `!override`; new ones warn of `version`."""
    assert {key for key in COMPOSE if not key.startswith("x-")} == {"services", "volumes"}
    assert not re.search(r"!(reset|override)\b", (ROOT / "docker-compose.gpu.yml").read_text(encoding="utf-8"))
    assert not any("deploy" in each for each in SERVICES.values()), "1.29 takes no limits from deploy"


def test_gpu_file_changes_services_that_exist() -> None:
    assert set(GPU) <= set(SERVICES)
    for name in ("triton-1", "triton-2"):
        assert GPU[name]["build"] != SERVICES[name]["build"]
        assert GPU[name]["image"] != SERVICES[name]["image"]
    devices = [
        GPU[name]["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"] for name in sorted(GPU)[1:]
    ]
    assert devices == [["0"], ["1"]]


def test_the_sidecars_config_names_the_services() -> None:
    settings = load((ROOT / "deploy/compose/extproc.yaml").read_bytes())

    hosts = {each.address for pool in settings.pools for each in pool.listed()}
    assert hosts <= set(SERVICES)
    bootstrap = rendered(settings, Path("/var/lib/extproc"))
    assert "/run/extproc/extproc.sock" in bootstrap
    assert "/run/extproc/control.sock" in bootstrap


def test_the_gpu_scenario_names_the_services() -> None:
    gpus = scenario((ROOT / "deploy/compose/gpus.yaml").read_bytes()).gpus

    assert {gpu.labels["Hostname"] for gpu in gpus} == {"triton-1", "triton-2"}


def test_prometheus_scrapes_every_service_that_has_metrics() -> None:
    jobs = read("deploy/prometheus/prometheus.yml")["scrape_configs"]
    targets = [target for job in jobs for config in job["static_configs"] for target in config["targets"]]

    without = {"prepare", "load", "redis", "grafana", "prometheus"}
    assert {target.split(":")[0] for target in targets} - {"127.0.0.1"} == set(SERVICES) - without


def test_alertmanager_routes_to_a_receiver_it_has() -> None:
    config = read("deploy/alertmanager/alertmanager.yml")

    assert config["route"]["receiver"] in {each["name"] for each in config["receivers"]}


def test_alertmanager_keeps_the_lesser_of_two_back() -> None:
    assert read("deploy/alertmanager/alertmanager.yml")["inhibit_rules"] == [INHIBIT]

"""The bootstrap as a pure function: what a plan changes, what it leaves, what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from msgspec.structs import replace

from extproc.errors import OurFault
from extproc.resources.bootstrap import following, from_files, render
from extproc.resources.plan import Pipe, Plan, Tcp
from extproc.resources.template import address, load_overlay, load_template
from tests.resources.configs import (
    MANAGER,
    PLAN,
    TRITON_GRPC,
    VLLM,
    at,
    by_name,
    clusters,
    endpoint,
    rendered,
)


def follows(**changes: Any) -> dict[str, Any]:
    return following(load_template(), load_overlay(), replace(PLAN, **changes))


def files(**changes: Any) -> dict[str, Any]:
    return from_files(load_template(), load_overlay(), replace(PLAN, **changes), "/run/x/xds")


MADE: list[Callable[..., dict[str, Any]]] = [rendered, follows, files]
everywhere = pytest.mark.parametrize("made", MADE)

# ── the same in every bootstrap ──────────────────────────────────────────────────────────────────


@everywhere
def test_addresses(made: Callable[..., dict[str, Any]]) -> None:
    config = made(listener=Tcp("0.0.0.0", 80), admin=Pipe("/run/admin.sock"), access_log_path="/var/log/a.log")
    assert at(config, "static_resources", "listeners", 0, "address", "socket_address") == {
        "address": "0.0.0.0",
        "port_value": 80,
    }
    assert config["admin"] == {"address": {"pipe": {"path": "/run/admin.sock"}}}
    assert at(config, *MANAGER, "access_log", 0, "typed_config", "path") == "/var/log/a.log"


@everywhere
@pytest.mark.parametrize(
    ("where", "kind"),
    [(Tcp("10.1.1.1", 9000), "STATIC"), (Tcp("sidecar", 9000), "STRICT_DNS"), (Pipe("/s"), "STATIC")],
)
@pytest.mark.parametrize(("key", "name"), [("ext_proc", "llm_ext_proc"), ("control", "llm_control")])
def test_both_sidecar_clusters_go_to_the_sidecar(
    made: Callable[..., dict[str, Any]], where: Tcp | Pipe, kind: str, key: str, name: str
) -> None:
    found = clusters(made(**{key: (where,) if key == "ext_proc" else where}))
    other = ({"llm_ext_proc", "llm_control"} - {name}).pop()
    assert found[name]["type"] == kind
    assert endpoint(found[name])["address"] == address(where)
    assert ("upstream_connection_options" in found[name]) is isinstance(where, Tcp)
    assert found[other] == clusters(load_template())[other]


@everywhere
@pytest.mark.parametrize("fail_open", [True, False])
def test_failure_mode(made: Callable[..., dict[str, Any]], fail_open: bool) -> None:
    config = made(fail_open=fail_open)
    assert at(config, *MANAGER, "http_filters", 0, "typed_config", "failure_mode_allow") is fail_open


@everywhere
def test_further_headers_may_be_shown_to_the_sidecar(made: Callable[..., dict[str, Any]]) -> None:
    patterns = (*MANAGER, "http_filters", 0, "typed_config", "forward_rules", "allowed_headers", "patterns")
    assert at(made(extra_allowed_headers=("X-Team",)), *patterns)[-1] == {"exact": "x-team"}


@everywhere
def test_the_shipped_files_are_left_alone_and_twice_gives_the_same(made: Callable[..., dict[str, Any]]) -> None:
    assert made() == made()


def test_what_is_handed_over_is_left_alone() -> None:
    template, overlay = load_template(), load_overlay()
    before = deepcopy((template, overlay))
    render(template, PLAN)
    following(template, overlay, PLAN)
    from_files(template, overlay, PLAN, "/x")
    assert (template, overlay) == before


@everywhere
def test_the_access_log_goes_to_the_control_cluster_too(made: Callable[..., dict[str, Any]]) -> None:
    logs = by_name(at(made(), *MANAGER, "access_log"))
    common = at(logs["latency"], "typed_config", "common_config")
    assert at(common, "grpc_service", "envoy_grpc", "cluster_name") == "llm_control"


# ── by itself ────────────────────────────────────────────────────────────────────────────────────


def test_clusters_stand_in_the_order_of_the_plan() -> None:
    config = rendered(engines=(VLLM, TRITON_GRPC))
    assert list(clusters(config)) == ["chat", "triton-grpc", "llm_ext_proc", "llm_control"]
    assert "dynamic_resources" not in config


# ── following the control plane ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("engines", [PLAN.engines, (), (VLLM, TRITON_GRPC)])
@pytest.mark.parametrize("made", [follows, files])
def test_a_follower_knows_nothing_of_the_pools(
    made: Callable[..., dict[str, Any]], engines: tuple[Any, ...]
) -> None:
    config = made(engines=engines)
    assert list(clusters(config)) == ["llm_ext_proc", "llm_control"]
    assert config == made()
    assert "route_config" not in at(config, *MANAGER)


def test_a_follower_is_told_over_one_stream() -> None:
    config = follows()
    ads = at(config, "dynamic_resources", "ads_config", "grpc_services", 0, "envoy_grpc")
    assert ads["cluster_name"] == "llm_control"
    assert at(config, "dynamic_resources", "cds_config", "ads") == {}
    assert at(config, *MANAGER, "rds") == load_overlay()["rds"]
    assert at(config, *MANAGER, "rds", "route_config_name") == at(load_template(), *MANAGER, "route_config", "name")
    assert "lds_config" not in config["dynamic_resources"]


@pytest.mark.parametrize("made", [follows, files])
def test_the_runtime_of_the_template_stays_beneath(made: Callable[..., dict[str, Any]]) -> None:
    layers = at(made(), "layered_runtime", "layers")
    assert [each["name"] for each in layers] == ["base", "control-plane"]
    assert layers[0] == at(load_template(), "layered_runtime", "layers", 0)


def test_everything_else_is_the_templates() -> None:
    """A follower differs from the static bootstrap in what it is told, and in nothing else."""
    static, follower = rendered(), follows()
    for config in (static, follower):
        config.pop("dynamic_resources", None)
        config["layered_runtime"]["layers"] = config["layered_runtime"]["layers"][:1]
        at(config, *MANAGER).pop("route_config", None)
        at(config, *MANAGER).pop("rds", None)
        config["static_resources"]["clusters"] = at(config, "static_resources", "clusters")[-2:]
    assert static == follower


# ── following files ──────────────────────────────────────────────────────────────────────────────


def test_files_take_the_place_of_the_stream() -> None:
    config = files()
    sources = {
        "cds": at(config, "dynamic_resources", "cds_config"),
        "rds": at(config, *MANAGER, "rds", "config_source"),
        "rtds": at(config, "layered_runtime", "layers", 1, "rtds_layer", "rtds_config"),
    }
    for name, source in sources.items():
        assert source["path_config_source"] == {
            "path": f"/run/x/xds/{name}.json",
            "watched_directory": {"path": "/run/x/xds"},
        }
        assert "ads" not in source
    assert list(config["dynamic_resources"]) == ["cds_config"]


# ── what is refused ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "changes",
    [
        {"engines": ()},
        {"engines": (TRITON_GRPC,)},
        {"engines": (VLLM, VLLM)},
        {"engines": (VLLM, replace(TRITON_GRPC, name="chat"))},
        {"engines": (replace(VLLM, name="llm_ext_proc"),)},
        {"engines": (replace(VLLM, name="llm_control"),)},
        {"extra_paths": ("version",)},
    ],
)
def test_an_impossible_plan_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(OurFault) as refusal:
        rendered(**changes)
    assert refusal.value.reason == "envoy_plan"


def drop(*path: str | int) -> Callable[[dict[str, Any]], None]:
    return lambda template: at(template, *path[:-1]).pop(path[-1])


DAMAGES = [
    drop("admin"),
    drop("static_resources", "listeners"),
    drop("static_resources", "clusters", 0),
    drop("static_resources", "clusters", 1),
    drop("static_resources", "clusters", 2),
    drop("static_resources", "clusters", 3),
    drop("static_resources", "listeners", 0, "filter_chains", 0, "filters", 0),
    drop(*MANAGER, "http_filters", 0),
    drop(*MANAGER, "access_log", 0),
    drop(*MANAGER, "http_filters", 0, "typed_config", "forward_rules"),
]


@pytest.mark.parametrize("damage", [*DAMAGES, drop(*MANAGER, "route_config", "virtual_hosts", 0, "routes", -1)])
def test_a_template_without_a_named_piece_is_refused(damage: Callable[[dict[str, Any]], None]) -> None:
    template = load_template()
    damage(template)
    with pytest.raises(OurFault, match="the Envoy template"):
        render(template, PLAN)


@pytest.mark.parametrize("damage", [*DAMAGES, drop("layered_runtime")])
def test_a_follower_needs_the_same_pieces(damage: Callable[[dict[str, Any]], None]) -> None:
    template = load_template()
    damage(template)
    with pytest.raises(OurFault, match="the Envoy template"):
        following(template, load_overlay(), PLAN)


@pytest.mark.parametrize("key", ["dynamic_resources", "layered_runtime", "rds"])
def test_an_overlay_without_a_piece_is_refused(key: str) -> None:
    overlay = load_overlay()
    del overlay[key]
    with pytest.raises(OurFault, match=key):
        following(load_template(), overlay, PLAN)


def test_a_plan_needs_no_pools_to_follow() -> None:
    nobody = Plan(engines=(), ext_proc=(Pipe("/s"),))
    assert clusters(following(load_template(), load_overlay(), nobody))

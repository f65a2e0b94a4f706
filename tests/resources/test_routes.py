"""Where requests go, and what is not served."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from msgspec.structs import replace

from extproc.errors import OurFault
from extproc.model.names import Family
from extproc.resources.plan import EngineCluster, Served
from extproc.resources.routes import USAGE, family_clusters, grpc_cluster, lay_routes
from extproc.resources.template import load_template
from tests.resources.configs import (
    LLAMA,
    MANAGER,
    PLAN,
    TRITON,
    TRITON_GRPC,
    VLLM,
    at,
    by_name,
    rendered,
    routes,
)

GRPC = ["triton-grpc-critical", "triton-grpc"]

# ── where requests go ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("engines", "expected"),
    [
        (
            (TRITON, LLAMA, VLLM),
            {"triton": "triton", "openai": "light", "anthropic": "light", "llamacpp": "light"},
        ),
        ((VLLM, TRITON), {"triton": "triton", "openai": "chat", "anthropic": "chat", "llamacpp": "chat"}),
        ((TRITON,), {"triton": "triton", "openai": "triton", "anthropic": "triton", "llamacpp": "triton"}),
        (
            (TRITON_GRPC, TRITON, VLLM),
            {"triton": "triton", "openai": "chat", "anthropic": "chat", "llamacpp": "triton"},
        ),
    ],
)
def test_a_family_goes_to_the_first_engine_that_speaks_it(
    engines: tuple[EngineCluster, ...], expected: dict[str, str]
) -> None:
    assert family_clusters(engines) == {Family(family): cluster for family, cluster in expected.items()}
    found = routes(rendered(engines=engines))
    for family, cluster in expected.items():
        assert {at(found[family + kind], "route", "cluster") for kind in ("", "-critical", "-upgrade")} == {cluster}


def test_a_pool_named_by_the_sidecar_is_followed_whatever_the_engines() -> None:
    found = routes(rendered())
    assert [at(found[name], "route", "cluster_header") for name in ("pool", "pool-critical")] == ["x-llm-pool"] * 2


def test_the_host_is_rewritten_once_one_engine_wants_it() -> None:
    engine = replace(VLLM, endpoints=(Served("10.0.0.1", 443, hostname="api.example.com"),))
    found = routes(rendered(engines=(engine, LLAMA)))
    assert all(each["route"]["auto_host_rewrite"] for each in found.values() if "route" in each)


def test_the_clients_host_is_kept_otherwise() -> None:
    assert not any("auto_host_rewrite" in each.get("route", {}) for each in routes(rendered()).values())


# ── gRPC ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("engines", "expected"),
    [
        ((VLLM, TRITON), None),
        ((VLLM, TRITON, TRITON_GRPC), "triton-grpc"),
        ((TRITON, TRITON_GRPC, replace(TRITON_GRPC, name="second-grpc")), "triton-grpc"),
        ((), None),
    ],
)
def test_grpc_goes_to_the_first_that_speaks_it(engines: tuple[EngineCluster, ...], expected: str | None) -> None:
    assert grpc_cluster(engines) == expected


def test_grpc_routes() -> None:
    found = routes(rendered(engines=(VLLM, TRITON, TRITON_GRPC)))
    assert list(found)[:2] == GRPC
    assert [found[name]["route"] for name in GRPC] == [
        {"cluster": "triton-grpc", "priority": "HIGH", "timeout": "0s", "idle_timeout": "3600s"},
        {"cluster": "triton-grpc", "timeout": "0s", "idle_timeout": "3600s"},
    ]


def test_without_a_grpc_pool_there_is_no_grpc_route() -> None:
    assert not set(GRPC) & set(routes(rendered()))


def test_the_body_of_a_grpc_request_is_never_held() -> None:
    found = routes(rendered(engines=(TRITON, TRITON_GRPC)))
    judged = ("typed_per_filter_config", "envoy.filters.http.ext_proc", "config", "overrides")
    for name in GRPC:
        mode = at(found[name], *judged, "processing_mode")
        assert (mode["request_header_mode"], mode["request_body_mode"]) == ("SEND", "NONE")
    assert at(found["triton"], *judged) == {}


# ── what is not served ───────────────────────────────────────────────────────────────────────────


def test_unknown_paths_are_rejected_by_a_message_that_names_the_key() -> None:
    unknown = routes(rendered())["unknown"]
    assert unknown["direct_response"]["status"] == 404
    body = json.loads(unknown["direct_response"]["body"]["inline_string"])
    assert "unknown_paths" in body["error"]["message"]


@pytest.mark.parametrize("engines", [(TRITON, LLAMA), (TRITON, LLAMA, TRITON_GRPC)])
def test_unknown_paths_may_pass_unjudged_to_the_first_engine(engines: tuple[EngineCluster, ...]) -> None:
    unknown = routes(rendered(engines=engines, unknown_paths="pass"))["unknown"]
    assert set(unknown) == {"name", "match", "route"}
    assert unknown["route"] == {"cluster": "triton", "timeout": "0s", "idle_timeout": "3600s"}


@pytest.mark.parametrize("engines", [(TRITON,), (TRITON, TRITON_GRPC)])
def test_extra_paths_stand_after_the_management_rules_and_before_the_rejection(
    engines: tuple[EngineCluster, ...],
) -> None:
    found = routes(rendered(engines=engines, extra_paths=("/version", "/docs/*")))
    order = [name for name in found if name not in GRPC]
    assert found["extra-1"]["match"] == {"path": "/version"}
    assert found["extra-2"]["match"] == {"prefix": "/docs/"}
    assert order[-3:] == ["extra-1", "extra-2", "unknown"]
    assert order[:3] == ["management", "management-triton", "disguised-path"]
    assert "management-behind-a-prefix" in order[:-3]
    assert not any("typed_per_filter_config" in found[name] for name in ("extra-1", "extra-2"))


@pytest.mark.parametrize(("engines", "more"), [((VLLM, TRITON), set()), ((VLLM, TRITON, TRITON_GRPC), set(GRPC))])
def test_only_served_routes_are_judged(engines: tuple[EngineCluster, ...], more: set[str]) -> None:
    found = routes(rendered(engines=engines, unknown_paths="pass", extra_paths=("/version",)))
    judged = {name for name, each in found.items() if "typed_per_filter_config" in each}
    families = {family + kind for family in Family for kind in ("", "-critical")}
    assert judged == families | {"pool", "pool-critical", "pool-fallback"} | more


@pytest.mark.parametrize("usage", [False, True])
def test_what_is_judged_is_observed_where_the_config_says_so(usage: bool) -> None:
    found = routes(rendered(usage=usage, engines=(VLLM, TRITON, TRITON_GRPC)))
    observers = {name: each.get("typed_per_filter_config", {}).get(USAGE) for name, each in found.items()}
    judged = {family + kind for family in Family for kind in ("", "-critical")} | {
        "pool",
        "pool-critical",
        "pool-fallback",
    }
    assert {name for name, observer in observers.items() if observer is not None} == judged
    assert all(observers[name]["disabled"] is not usage for name in judged)


# ── the rest ─────────────────────────────────────────────────────────────────────────────────────


def test_envoys_body_limit_lies_above_the_sidecars() -> None:
    host = (*MANAGER, "route_config", "virtual_hosts", 0, "request_body_buffer_limit")
    assert at(rendered(max_body_bytes=1000), *host) == 1000 + 65536
    assert at(load_template(), *host) == PLAN.max_body_bytes + 65536


def test_a_route_configuration_by_itself() -> None:
    """What the control plane sends is what the static configuration holds."""
    alone: dict[str, Any] = deepcopy(at(load_template(), *MANAGER, "route_config"))
    lay_routes(alone, PLAN)
    assert by_name(at(alone, "virtual_hosts", 0, "routes")) == routes(rendered())
    assert alone == at(rendered(), *MANAGER, "route_config")


@pytest.mark.parametrize("name", [*GRPC, "unknown", "llamacpp", "openai-critical", "triton-upgrade"])
def test_routes_without_a_named_one_are_refused(name: str) -> None:
    config = deepcopy(at(load_template(), *MANAGER, "route_config"))
    host = config["virtual_hosts"][0]
    host["routes"] = [each for each in host["routes"] if each["name"] != name]
    with pytest.raises(OurFault, match=f"has nothing named {name}"):
        lay_routes(config, PLAN)

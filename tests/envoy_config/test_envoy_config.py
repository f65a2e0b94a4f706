"""The overlay as a pure function: what a plan changes, what it leaves, what it refuses."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from extproc.cli import envoy_config
from extproc.cli.envoy_config import (
    EngineCluster,
    Pipe,
    Plan,
    Tcp,
    dump,
    family_clusters,
    find_envoy,
    load_template,
    render,
)
from extproc.errors import CannotStart, OurFault
from extproc.model.names import Engine, Family

VLLM = EngineCluster("chat", Engine.VLLM, "10.0.0.1", 8000)
TRITON = EngineCluster("triton", Engine.TRITON, "10.0.0.2", 8001)
LLAMA = EngineCluster("light", Engine.LLAMACPP, "10.0.0.3", 8002)
PLAN = Plan(engines=(TRITON, LLAMA, VLLM), ext_proc=Pipe("/run/extproc/extproc.sock"))
MANAGER = ("static_resources", "listeners", 0, "filter_chains", 0, "filters", 0, "typed_config")


def at(node: Any, *path: str | int) -> Any:
    for key in path:
        node = node[key]
    return node


def rendered(**changes: Any) -> dict[str, Any]:
    return render(load_template(), replace(PLAN, **changes))


def routes(config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By name, in order."""
    return {each["name"]: each for each in at(config, *MANAGER, "route_config", "virtual_hosts", 0, "routes")}


def clusters(config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in at(config, "static_resources", "clusters")}


def endpoint(cluster: dict[str, Any]) -> dict[str, Any]:
    found = at(cluster, "load_assignment", "endpoints", 0, "lb_endpoints", 0, "endpoint")
    assert isinstance(found, dict)
    return found


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


def test_every_engine_has_a_cluster_with_the_limits_of_the_example() -> None:
    config = rendered()
    assert list(clusters(config)) == ["triton", "light", "chat", "llm_ext_proc", "llm_control"]
    example = clusters(load_template())["engine-1"]
    for engine in PLAN.engines:
        cluster = clusters(config)[engine.name]
        assert endpoint(cluster) == {
            "address": {"socket_address": {"address": engine.host, "port_value": engine.port}}
        }
        assert cluster["circuit_breakers"] == example["circuit_breakers"]
        assert cluster["load_assignment"]["cluster_name"] == engine.name
        assert cluster["type"] == "STATIC"


@pytest.mark.parametrize("address", ["::1", "[::1]"])
def test_an_ipv6_address_is_no_name(address: str) -> None:
    cluster = clusters(rendered(engines=(replace(VLLM, host=address),)))["chat"]
    assert cluster["type"] == "STATIC"
    assert endpoint(cluster)["address"]["socket_address"]["address"] == "::1"


def test_a_name_is_resolved_by_dns() -> None:
    assert clusters(rendered(engines=(replace(VLLM, host="vllm.internal"),)))["chat"]["type"] == "STRICT_DNS"


def test_a_tls_engine_is_checked_for_its_name() -> None:
    engine = replace(VLLM, host="vllm.internal", tls=True)
    tls = clusters(rendered(engines=(engine,), ca_file="/ca.pem"))["chat"]["transport_socket"]["typed_config"]
    checks = tls["common_tls_context"]["validation_context"]
    assert tls["sni"] == "vllm.internal"
    assert checks["trusted_ca"] == {"filename": "/ca.pem"}
    assert checks["match_typed_subject_alt_names"] == [{"san_type": "DNS", "matcher": {"exact": "vllm.internal"}}]


def test_a_tls_engine_named_by_address_is_checked_for_its_address_without_sni() -> None:
    tls = clusters(rendered(engines=(replace(VLLM, tls=True),)))["chat"]["transport_socket"]["typed_config"]
    names = tls["common_tls_context"]["validation_context"]["match_typed_subject_alt_names"]
    assert names == [{"san_type": "IP_ADDRESS", "matcher": {"exact": "10.0.0.1"}}]
    assert "sni" not in tls


def test_a_rewritten_host_is_the_endpoints_name_and_the_certificates() -> None:
    engine = replace(VLLM, tls=True, host_rewrite="api.example.com")
    config = rendered(engines=(engine, LLAMA))
    assert endpoint(clusters(config)["chat"])["hostname"] == "api.example.com"
    assert clusters(config)["chat"]["transport_socket"]["typed_config"]["sni"] == "api.example.com"
    assert "hostname" not in endpoint(clusters(config)["light"])
    assert all(each["route"]["auto_host_rewrite"] for each in routes(config).values() if "route" in each)


def test_the_clients_host_is_kept_otherwise() -> None:
    assert not any("auto_host_rewrite" in each.get("route", {}) for each in routes(rendered()).values())


# ── what is not served ───────────────────────────────────────────────────────────────────────────


def test_unknown_paths_are_rejected_by_a_message_that_names_the_key() -> None:
    unknown = routes(rendered())["unknown"]
    assert unknown["direct_response"]["status"] == 404
    body = json.loads(unknown["direct_response"]["body"]["inline_string"])
    assert "unknown_paths" in body["error"]["message"]


def test_unknown_paths_may_pass_unjudged_to_the_first_engine() -> None:
    unknown = routes(rendered(unknown_paths="pass"))["unknown"]
    assert set(unknown) == {"name", "match", "route"}
    assert unknown["route"] == {"cluster": "triton", "timeout": "0s", "idle_timeout": "3600s"}


def test_extra_paths_stand_after_the_management_rules_and_before_the_rejection() -> None:
    found = routes(rendered(extra_paths=("/version", "/docs/*")))
    order = list(found)
    assert found["extra-1"]["match"] == {"path": "/version"}
    assert found["extra-2"]["match"] == {"prefix": "/docs/"}
    assert order[-3:] == ["extra-1", "extra-2", "unknown"]
    assert order[:3] == ["management", "management-triton", "disguised-path"]
    assert "management-behind-a-prefix" in order[:-3]
    assert not any("typed_per_filter_config" in found[name] for name in ("extra-1", "extra-2"))


def test_only_served_routes_are_judged() -> None:
    judged = {name for name, each in routes(rendered()).items() if "typed_per_filter_config" in each}
    families = {family + kind for family in Family for kind in ("", "-critical")}
    assert judged == families | {"pool", "pool-critical"}


def test_every_answer_of_a_route_is_an_openai_error() -> None:
    for each in routes(load_template()).values():
        if "direct_response" in each:
            error = json.loads(each["direct_response"]["body"]["inline_string"])["error"]
            assert set(error) == {"message", "type", "param", "code"}
            assert at(each, "response_headers_to_add", 0, "header", "value") == "application/json"


def test_every_local_reply_is_an_openai_error() -> None:
    for mapper in at(load_template(), *MANAGER, "local_reply_config", "mappers"):
        written = at(mapper, "body_format_override", "text_format_source", "inline_string")
        assert set(json.loads(written)["error"]) == {"message", "type", "param", "code"}
        assert at(mapper, "body_format_override", "content_type") == "application/json"


# ── the rest of a plan ───────────────────────────────────────────────────────────────────────────


def test_addresses() -> None:
    config = rendered(listener=Tcp("0.0.0.0", 80), admin=Pipe("/run/admin.sock"), access_log_path="/var/log/a.log")
    assert at(config, "static_resources", "listeners", 0, "address", "socket_address") == {
        "address": "0.0.0.0",
        "port_value": 80,
    }
    assert config["admin"] == {"address": {"pipe": {"path": "/run/admin.sock"}}}
    assert at(config, *MANAGER, "access_log", 0, "typed_config", "path") == "/var/log/a.log"


@pytest.mark.parametrize(
    ("address", "kind"),
    [(Tcp("10.1.1.1", 9000), "STATIC"), (Tcp("sidecar", 9000), "STRICT_DNS"), (Pipe("/s"), "STATIC")],
)
def test_both_sidecar_clusters_go_to_the_sidecar(address: Tcp | Pipe, kind: str) -> None:
    found = clusters(rendered(ext_proc=address))
    for name in ("llm_ext_proc", "llm_control"):
        assert found[name]["type"] == kind
        assert endpoint(found[name])["address"] == envoy_config._address(address)
        assert ("upstream_connection_options" in found[name]) is isinstance(address, Tcp)


@pytest.mark.parametrize("fail_open", [True, False])
def test_failure_mode(fail_open: bool) -> None:
    assert (
        at(rendered(fail_open=fail_open), *MANAGER, "http_filters", 0, "typed_config", "failure_mode_allow")
        is fail_open
    )


def test_envoys_body_limit_lies_above_the_sidecars() -> None:
    host = (*MANAGER, "route_config", "virtual_hosts", 0, "request_body_buffer_limit")
    assert at(rendered(max_body_bytes=1000), *host) == 1000 + 65536
    assert at(load_template(), *host) == PLAN.max_body_bytes + 65536


def test_further_headers_may_be_shown_to_the_sidecar() -> None:
    patterns = (*MANAGER, "http_filters", 0, "typed_config", "forward_rules", "allowed_headers", "patterns")
    assert at(rendered(extra_allowed_headers=("X-Team",)), *patterns)[-1] == {"exact": "x-team"}


def test_the_defaults_of_a_plan_are_the_templates_values() -> None:
    plan = Plan(
        engines=(EngineCluster("engine-1", Engine.VLLM, "127.0.0.1", 8000),),
        ext_proc=Pipe("/run/extproc/extproc.sock"),
    )
    assert render(load_template(), plan) == load_template()


def test_the_template_is_left_alone_and_rendering_twice_gives_the_same() -> None:
    template = load_template()
    before = deepcopy(template)
    assert render(template, PLAN) == render(template, PLAN)
    assert template == before


def test_what_is_written_reads_back_and_quotes_every_string() -> None:
    config = rendered() | {"node": {"id": "n", "cluster": "y"}}
    assert json.loads(dump(config)) == config
    assert '"id": "n"' in dump(config)


# ── what is refused ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "changes",
    [
        {"engines": ()},
        {"engines": (VLLM, VLLM)},
        {"engines": (replace(VLLM, name="llm_ext_proc"),)},
        {"extra_paths": ("version",)},
    ],
)
def test_an_impossible_plan_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(OurFault):
        rendered(**changes)


def drop(*path: str | int) -> Callable[[dict[str, Any]], None]:
    return lambda template: at(template, *path[:-1]).pop(path[-1])


@pytest.mark.parametrize(
    "damage",
    [
        drop("admin"),
        drop("static_resources", "listeners"),
        drop("static_resources", "clusters", 0),
        drop("static_resources", "clusters", 1),
        drop("static_resources", "listeners", 0, "filter_chains", 0, "filters", 0),
        drop(*MANAGER, "http_filters", 0),
        drop(*MANAGER, "access_log", 0),
        drop(*MANAGER, "route_config", "virtual_hosts", 0, "routes", -1),
        drop(*MANAGER, "http_filters", 0, "typed_config", "forward_rules"),
    ],
)
def test_a_template_without_a_named_piece_is_refused(damage: Callable[[dict[str, Any]], None]) -> None:
    template = load_template()
    damage(template)
    with pytest.raises(OurFault, match="the Envoy template"):
        render(template, PLAN)


def test_a_missing_template_is_our_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(envoy_config, "__file__", str(tmp_path / "a" / "b" / "c.py"))
    monkeypatch.setattr(envoy_config.importlib.resources, "files", lambda _: tmp_path)
    with pytest.raises(OurFault, match="missing"):
        load_template()


# ── where Envoy is ───────────────────────────────────────────────────────────────────────────────


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_environment_chooses_envoy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ENVOY_BIN", str(program(tmp_path / "mine")))
    assert find_envoy() == tmp_path / "mine"


def test_a_wrong_choice_is_not_papered_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ENVOY_BIN", str(tmp_path / "absent"))
    with pytest.raises(CannotStart, match="ENVOY_BIN"):
        find_envoy()


def test_the_package_of_this_interpreter_is_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENVOY_BIN", raising=False)
    assert find_envoy().parts[-3:] == ("envoy", "_bin", "envoy")


def test_path_is_last_and_a_folder_called_envoy_does_not_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ENVOY_BIN", raising=False)
    (tmp_path / "checkout" / "envoy").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "checkout")])
    monkeypatch.setenv("PATH", str(program(tmp_path / "bin" / "envoy").parent))
    assert find_envoy() == tmp_path / "bin" / "envoy"


def test_without_envoy_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ENVOY_BIN", raising=False)
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotStart, match="Envoy is not installed"):
        find_envoy()

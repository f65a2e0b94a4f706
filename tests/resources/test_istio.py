"""The EnvoyFilter as a pure function: whose pieces it carries, in which order, and for which port."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from extproc.resources.istio import CONTEXTS, Proxy, envoy_filter
from extproc.resources.template import connection_manager, load_overlay, load_template, named
from tests.resources.configs import PLAN, at

both = pytest.mark.parametrize("proxy", list(Proxy))


def patches(proxy: Proxy, applied_to: str, **changes: Any) -> list[dict[str, Any]]:
    found = envoy_filter(load_template(), load_overlay(), replace(PLAN, **changes), proxy=proxy, port=8000)
    return [each for each in found["spec"]["configPatches"] if each["applyTo"] == applied_to]


def values(proxy: Proxy, applied_to: str, **changes: Any) -> list[dict[str, Any]]:
    return [each["patch"]["value"] for each in patches(proxy, applied_to, **changes)]


@both
def test_every_patch_is_for_its_proxies(proxy: Proxy) -> None:
    found = envoy_filter(load_template(), load_overlay(), PLAN, proxy=proxy, port=8000)

    assert {each["match"]["context"] for each in found["spec"]["configPatches"]} == {CONTEXTS[proxy]}
    assert found["metadata"]["name"] == f"extproc-{proxy}"


@both
def test_the_sidecars_clusters_and_none_of_engines(proxy: Proxy) -> None:
    assert [each["name"] for each in values(proxy, "CLUSTER")] == ["llm_ext_proc", "llm_control"]


@both
def test_filters_stand_before_the_router_in_the_templates_order_and_are_on(proxy: Proxy) -> None:
    found = patches(proxy, "HTTP_FILTER")
    names = [each["patch"]["value"]["name"] for each in found]

    assert names == ["envoy.filters.http.ext_proc", "strip-caller-parameters", "engine-load"]
    assert {each["patch"]["operation"] for each in found} == {"INSERT_BEFORE"}
    router = "envoy.filters.http.router"
    assert {at(each, "match", "listener", "filterChain", "filter", "subFilter", "name") for each in found} == {
        router
    }
    assert not any("disabled" in each["patch"]["value"] for each in found)


@both
def test_filters_are_the_templates(proxy: Proxy) -> None:
    shipped = connection_manager(load_template())["http_filters"]
    for each in values(proxy, "HTTP_FILTER", fail_open=True):
        assert each["typed_config"] == named(shipped, each["name"])["typed_config"]


def test_the_observer_of_answers_comes_with_usage() -> None:
    names = [each["name"] for each in values(Proxy.INBOUND, "HTTP_FILTER", usage=True)]

    assert names[1] == "llm.usage"


def test_one_port_alone_is_judged() -> None:
    (inbound,) = patches(Proxy.INBOUND, "NETWORK_FILTER")
    (gateway,) = patches(Proxy.GATEWAY, "NETWORK_FILTER")

    assert at(inbound, "match", "listener", "filterChain", "destinationPort") == 8000
    assert at(gateway, "match", "listener", "portNumber") == 8000


def test_spoofed_headers_go_first_and_latencies_are_told() -> None:
    (value,) = values(Proxy.INBOUND, "NETWORK_FILTER")
    manager = connection_manager(load_template())

    assert value["typed_config"]["early_header_mutation_extensions"] == manager["early_header_mutation_extensions"]
    assert [each["name"] for each in value["typed_config"]["access_log"]] == ["latency"]


def test_routes_drop_the_callers_headers_and_bound_the_body() -> None:
    (removed,) = values(Proxy.INBOUND, "ROUTE_CONFIGURATION")
    (bounded,) = values(Proxy.INBOUND, "VIRTUAL_HOST", max_body_bytes=1000)

    assert "x-caller-token" in removed["request_headers_to_remove"]
    assert bounded["request_body_buffer_limit"] == 1000 + 65536
    (match,) = [each["match"] for each in patches(Proxy.INBOUND, "VIRTUAL_HOST")]
    assert match["routeConfiguration"] == {"name": "inbound|8000||"}


def test_failing_closed_and_further_headers_reach_the_filter() -> None:
    judging, *_ = values(Proxy.GATEWAY, "HTTP_FILTER", fail_open=False, extra_allowed_headers=("X-Team",))

    assert judging["typed_config"]["failure_mode_allow"] is False
    assert {"exact": "x-team"} in at(judging, "typed_config", "forward_rules", "allowed_headers", "patterns")

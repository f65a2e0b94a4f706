"""Clusters and assignments, after the template's examples."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from extproc.model.names import Engine
from extproc.resources.clusters import ADS, assignment, discovery, eds_cluster, static_cluster
from extproc.resources.plan import EngineCluster, Served
from extproc.resources.template import load_template
from tests.resources.configs import (
    LLAMA,
    PLAN,
    TRITON,
    TRITON_GRPC,
    VLLM,
    at,
    at_host,
    clusters,
    endpoint,
    endpoints,
    rendered,
)

TEMPLATE = load_template()
EXAMPLES = at(TEMPLATE, "static_resources", "clusters")
CA = "/ca.pem"
PROTOCOL = ("typed_extension_protocol_options", "envoy.extensions.upstreams.http.v3.HttpProtocolOptions")


def static(plan: EngineCluster) -> dict[str, Any]:
    return static_cluster(EXAMPLES, plan, CA)


def eds(plan: EngineCluster) -> dict[str, Any]:
    return eds_cluster(EXAMPLES, plan, CA)


# ── the examples of the template ─────────────────────────────────────────────────────────────────


def test_every_engine_has_a_cluster_with_the_limits_of_the_example() -> None:
    config = rendered()
    assert list(clusters(config)) == ["triton", "light", "chat", "llm_ext_proc", "llm_control"]
    example = clusters(TEMPLATE)["engine-1"]
    for engine in PLAN.engines:
        cluster = clusters(config)[engine.name]
        (served,) = engine.endpoints
        assert endpoint(cluster) == {
            "address": {"socket_address": {"address": served.host, "port_value": served.port}}
        }
        assert cluster["circuit_breakers"] == example["circuit_breakers"]
        assert cluster["load_assignment"]["cluster_name"] == engine.name
        assert cluster["type"] == "STATIC"


@pytest.mark.parametrize(("plan", "example"), [(VLLM, "engine-1"), (TRITON_GRPC, "engine-1-grpc")])
@pytest.mark.parametrize("made", [static, eds])
def test_what_a_plan_does_not_say_is_the_examples(plan: EngineCluster, example: str, made: Any) -> None:
    own = {"name", "type", "load_assignment", "eds_cluster_config"}
    expected = {key: value for key, value in clusters(TEMPLATE)[example].items() if key not in own}
    assert {key: value for key, value in made(plan).items() if key not in own} == expected


def test_the_examples_are_left_alone() -> None:
    before = deepcopy(EXAMPLES)
    for plan in (replace(VLLM, max_requests=1, tls_name="x"), TRITON_GRPC, at_host(("a",))):
        static(plan)
        eds(plan)
    assert before == EXAMPLES


def test_grpc_is_http2_and_everything_else_http1() -> None:
    assert "http2_protocol_options" in at(static(TRITON_GRPC), *PROTOCOL, "explicit_http_config")
    assert list(at(static(TRITON), *PROTOCOL, "explicit_http_config")) == ["http_protocol_options"]


@pytest.mark.parametrize(("engine", "kept"), [(Engine.VLLM, "4s"), (Engine.LLAMACPP, "4s"), (Engine.TRITON, "60s")])
@pytest.mark.parametrize("http2", [False, True])
def test_a_connection_is_given_up_before_the_engine_does(engine: Engine, kept: str, http2: bool) -> None:
    cluster = eds(replace(VLLM, engine=engine, http2=http2))
    assert at(cluster, *PROTOCOL, "common_http_protocol_options", "idle_timeout") == kept


@pytest.mark.parametrize("plan", [VLLM, TRITON_GRPC])
@pytest.mark.parametrize("made", [static, eds])
def test_the_limit_of_a_pool_holds_for_both_priorities(plan: EngineCluster, made: Any) -> None:
    thresholds = at(made(replace(plan, max_requests=17)), "circuit_breakers", "thresholds")
    assert [each["priority"] for each in thresholds] == ["DEFAULT", "HIGH"]
    for each in thresholds:
        assert (each["max_requests"], each["max_connections"], each["max_pending_requests"]) == (17, 17, 17)
        assert each["max_retries"] == 64


@pytest.mark.parametrize("policy", ["ROUND_ROBIN", "LEAST_REQUEST"])
def test_the_load_balancing_policy(policy: str) -> None:
    assert static(replace(VLLM, lb_policy=policy))["lb_policy"] == policy
    assert eds(replace(TRITON_GRPC, lb_policy=policy))["lb_policy"] == policy


# ── endpoints ────────────────────────────────────────────────────────────────────────────────────

MANY = replace(
    VLLM,
    endpoints=(
        Served("10.0.0.1", 8000, 700),
        Served("10.0.0.2", 8001, 299),
        Served("::1", 8002, 1, draining=True),
    ),
)


def test_weights_and_draining() -> None:
    assert endpoints(static(MANY)) == [
        {
            "endpoint": {"address": {"socket_address": {"address": "10.0.0.1", "port_value": 8000}}},
            "load_balancing_weight": 700,
        },
        {
            "endpoint": {"address": {"socket_address": {"address": "10.0.0.2", "port_value": 8001}}},
            "load_balancing_weight": 299,
        },
        {
            "endpoint": {"address": {"socket_address": {"address": "::1", "port_value": 8002}}},
            "load_balancing_weight": 1,
            "health_status": "DRAINING",
        },
    ]
    assert static(MANY)["load_assignment"] == assignment(MANY)
    assert assignment(MANY)["cluster_name"] == "chat"


def test_a_pool_without_endpoints_has_an_empty_assignment() -> None:
    """No locality at all: Envoy refuses one without endpoints."""
    nobody = replace(VLLM, endpoints=())
    assert assignment(nobody) == {"cluster_name": "chat", "endpoints": []}
    assert static(nobody)["type"] == "STATIC"


@given(st.lists(st.tuples(st.integers(1, 10**6), st.booleans()), max_size=20))
def test_a_weight_never_replaces_the_cluster(weights: list[tuple[int, bool]]) -> None:
    moved = tuple(Served("10.0.0.1", 1 + number, *each) for number, each in enumerate(weights))
    assert eds(replace(VLLM, endpoints=moved)) == eds(VLLM)
    assert eds(replace(VLLM, endpoints=(Served("chat.internal", 1),))) == eds(VLLM)


def test_the_endpoints_of_an_eds_cluster_come_by_themselves() -> None:
    cluster = eds(VLLM)
    assert (cluster["name"], cluster["type"]) == ("chat", "EDS")
    assert cluster["eds_cluster_config"] == {"eds_config": ADS}
    assert not {"load_assignment", "dns_lookup_family"} & set(cluster)


@pytest.mark.parametrize("address", ["::1", "[::1]"])
def test_an_ipv6_address_is_no_name(address: str) -> None:
    cluster = static(at_host((address,)))
    assert cluster["type"] == "STATIC"
    assert endpoint(cluster)["address"]["socket_address"]["address"] == "::1"


def test_a_name_is_resolved_by_dns() -> None:
    for hosts in (("vllm.internal",), ("10.0.0.1", "vllm.internal")):
        cluster = static(at_host(hosts))
        assert (cluster["type"], cluster["dns_lookup_family"]) == ("STRICT_DNS", "V4_PREFERRED")
        assert len(endpoints(cluster)) == len(hosts)


@pytest.mark.parametrize(
    ("hosts", "found"),
    [([], "STATIC"), (["10.0.0.1", "[::1]"], "STATIC"), (["a"], "STRICT_DNS"), (["10.0.0.1", "a"], "STRICT_DNS")],
)
def test_discovery(hosts: list[str], found: str) -> None:
    assert discovery(hosts)["type"] == found
    assert discovery(iter(hosts)) == discovery(hosts)


# ── TLS ──────────────────────────────────────────────────────────────────────────────────────────


def tls(cluster: dict[str, Any]) -> Any:
    return at(cluster, "transport_socket", "typed_config")


@pytest.mark.parametrize("made", [static, eds])
def test_a_tls_engine_is_checked_for_its_name(made: Any) -> None:
    found = tls(made(at_host(("vllm.internal",), tls_name="vllm.internal")))
    checks = at(found, "common_tls_context", "validation_context")
    assert found["sni"] == "vllm.internal"
    assert checks["trusted_ca"] == {"filename": "/ca.pem"}
    assert checks["match_typed_subject_alt_names"] == [{"san_type": "DNS", "matcher": {"exact": "vllm.internal"}}]
    assert at(found, "common_tls_context", "alpn_protocols") == ["http/1.1"]


@pytest.mark.parametrize("address", ["10.0.0.1", "::1"])
def test_a_tls_engine_named_by_address_is_checked_for_its_address_without_sni(address: str) -> None:
    found = tls(static(at_host((address,), tls_name=address)))
    names = at(found, "common_tls_context", "validation_context", "match_typed_subject_alt_names")
    assert names == [{"san_type": "IP_ADDRESS", "matcher": {"exact": address}}]
    assert "sni" not in found


def test_grpc_over_tls_asks_for_http2() -> None:
    found = tls(static(replace(TRITON_GRPC, tls_name="triton.internal")))
    assert at(found, "common_tls_context", "alpn_protocols") == ["h2"]


def test_without_a_name_there_is_no_tls() -> None:
    assert "transport_socket" not in static(LLAMA)
    assert "transport_socket" not in eds(LLAMA)


def test_a_rewritten_host_is_the_endpoints_name() -> None:
    engine = replace(
        VLLM, endpoints=(Served("10.0.0.1", 443, hostname="api.example.com"),), tls_name="api.example.com"
    )
    config = rendered(engines=(engine, LLAMA))
    assert endpoint(clusters(config)["chat"])["hostname"] == "api.example.com"
    assert tls(clusters(config)["chat"])["sni"] == "api.example.com"
    assert "hostname" not in endpoint(clusters(config)["light"])

"""All that one kind of Envoy is told: what a config fixes, and what endpoints of a moment add."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from extproc.codec.xds import encode
from extproc.model.xds import Kind
from extproc.resources.check import check
from extproc.resources.plan import EngineCluster, Plan, Served
from extproc.resources.template import Node, load_template
from extproc.resources.world import ROUTES, RUNTIME, Fixed, fixed, resources, runtime
from tests.resources.configs import LLAMA, PLAN, TRITON, TRITON_GRPC, VLLM, at, by_name, endpoints

TEMPLATE = load_template()
ALL = replace(PLAN, engines=(TRITON, LLAMA, VLLM, TRITON_GRPC))


def parts(plan: Plan = ALL, template: Node = TEMPLATE) -> Fixed:
    return fixed(template, plan)


def served(count: int, **changes: Any) -> tuple[Served, ...]:
    return tuple(Served(f"10.0.0.{number + 1}", 8000, **changes) for number in range(count))


def test_one_of_each_for_every_engine() -> None:
    found = resources(parts(), ALL.engines, generation=7)
    names = ["triton", "light", "chat", "triton-grpc"]
    assert found.generation == 7
    assert list(found.of(Kind.CDS)) == list(found.of(Kind.EDS)) == names
    assert list(found.of(Kind.RDS)) == [ROUTES]
    assert list(found.of(Kind.RTDS)) == [RUNTIME]
    assert check(found) == ()


def test_clusters_hold_no_endpoints_so_that_a_weight_replaces_none() -> None:
    for name, cluster in parts().clusters.items():
        assert cluster["name"] == name
        assert cluster["type"] == "EDS"
        assert "load_assignment" not in cluster


def test_what_the_config_fixes_is_handed_on_as_the_same_objects() -> None:
    fixed_parts = parts()
    one, other = (resources(fixed_parts, ALL.engines, generation=number) for number in (1, 2))
    for kind in (Kind.CDS, Kind.RDS, Kind.RTDS):
        assert one.of(kind) is other.of(kind)
    first = encode(one)
    second = encode(other, first)
    for kind in (Kind.CDS, Kind.RDS, Kind.RTDS):
        assert all(second.of(kind).by_name[name] is each for name, each in first.of(kind).by_name.items())


def test_only_the_assignment_that_changed_has_another_version() -> None:
    fixed_parts = parts()
    before = encode(resources(fixed_parts, ALL.engines, generation=1))
    moved = (replace(TRITON, endpoints=served(2, weight=5)), LLAMA, VLLM, TRITON_GRPC)
    after = encode(resources(fixed_parts, moved, generation=2), before)
    changed = {
        name
        for kind in Kind
        for name, each in after.of(kind).by_name.items()
        if each.version != before.of(kind).by_name[name].version
    }
    assert changed == {"triton"}


def test_weights_and_draining_are_in_the_assignments_alone() -> None:
    engine = replace(VLLM, endpoints=(Served("10.0.0.1", 8000, 700), Served("10.0.0.2", 8000, 1, draining=True)))
    found = resources(parts(replace(PLAN, engines=(engine,))), [engine], generation=1)
    first, second = endpoints(dict(found.of(Kind.EDS)["chat"]))
    assert (first["load_balancing_weight"], first.get("health_status")) == (700, None)
    assert (second["load_balancing_weight"], second["health_status"]) == (1, "DRAINING")


def test_an_engine_without_endpoints_has_an_empty_assignment() -> None:
    empty = replace(VLLM, endpoints=())
    found = resources(parts(replace(PLAN, engines=(empty,))), [empty], generation=1)
    assert found.of(Kind.EDS) == {"chat": {"cluster_name": "chat", "endpoints": []}}
    assert check(found) == ()


def test_without_engines_there_is_nothing_to_publish() -> None:
    found = resources(parts(replace(PLAN, engines=())), [], generation=1)
    assert all(not found.of(kind) for kind in Kind)
    assert check(found) != ()


def test_routes_lead_to_engines_of_this_plan() -> None:
    found = parts(replace(PLAN, engines=(VLLM,)))
    config = found.routes[ROUTES]
    assert config["name"] == ROUTES
    routes = by_name(at(config, "virtual_hosts", 0, "routes"))
    assert routes["openai"]["route"]["cluster"] == "chat"
    assert "triton-grpc" not in routes


@pytest.mark.parametrize("tls_name", ["", "llm.example"])
def test_the_host_header_is_the_certificates_name_also_before_endpoints_are_known(tls_name: str) -> None:
    engine = EngineCluster("chat", VLLM.engine, (), tls_name=tls_name)
    routes = at(parts(replace(PLAN, engines=(engine,))).routes[ROUTES], "virtual_hosts", 0, "routes")
    assert {each["route"].get("auto_host_rewrite", False) for each in routes if "route" in each} == {bool(tls_name)}


def test_runtime_names_the_limits_of_every_cluster_and_priority() -> None:
    engines = (replace(VLLM, max_requests=9), TRITON_GRPC)
    assert runtime(engines) == {
        "circuit_breakers.chat.default.max_requests": 9,
        "circuit_breakers.chat.high.max_requests": 9,
        "circuit_breakers.triton-grpc.default.max_requests": 4096,
        "circuit_breakers.triton-grpc.high.max_requests": 4096,
    }
    layer = parts(replace(PLAN, engines=engines)).runtime[RUNTIME]
    assert layer == {"name": RUNTIME, "layer": runtime(engines)}


def test_the_template_stays_as_it_was() -> None:
    template = load_template()
    before = json.dumps(template)
    resources(parts(ALL, template), ALL.engines, generation=1)
    assert json.dumps(template) == before


@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 10_000), st.booleans()), max_size=6),
        min_size=1,
        max_size=4,
    )
)
def test_whatever_the_endpoints_envoy_takes_it(pools: list[list[tuple[int, bool]]]) -> None:
    engines = tuple(
        replace(
            VLLM,
            name=f"p{number}",
            endpoints=tuple(Served(f"10.0.{number}.{at + 1}", 1, *each) for at, each in enumerate(pool)),
        )
        for number, pool in enumerate(pools)
    )
    found = resources(parts(replace(PLAN, engines=engines)), engines, generation=1)
    assert check(found) == ()
    assert encode(found).assignments == {each.name: each.name for each in engines}

"""Encoding: against Envoy's own messages, by content, and only what changed."""

from __future__ import annotations

from typing import Any

import pytest
from envoy_data_plane.envoy.config.cluster import v3 as cluster
from envoy_data_plane.envoy.config.endpoint import v3 as endpoint
from hypothesis import given
from hypothesis import strategies as st

from extproc.codec import proto_json
from extproc.codec.proto_json import CannotEncode
from extproc.codec.xds import encode, load_assignment
from extproc.model.xds import TYPE_PREFIX, Kind, Resources

CLA = Kind.EDS.removeprefix(TYPE_PREFIX)


def lb_endpoint(port: int = 8000, weight: int | None = 1, **more: Any) -> dict[str, Any]:
    address = {"socket_address": {"address": "10.0.0.1", "port_value": port}}
    weighed = {} if weight is None else {"load_balancing_weight": weight}
    return {"endpoint": {"address": address}, **weighed, **more}


def assignment(name: str = "a", *endpoints: dict[str, Any]) -> dict[str, Any]:
    return {"cluster_name": name, "endpoints": [{"lb_endpoints": list(endpoints)}]}


def eds(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "EDS", **more}


def resources(generation: int = 1, **by_kind: dict[str, Any]) -> Resources:
    return Resources(generation, {Kind[kind]: named for kind, named in by_kind.items()})


WEIGHTS = st.integers(0, 2**32 - 1)
ADDRESSES = st.one_of(
    st.builds(
        lambda address, port: {"socket_address": {"address": address, "port_value": port}},
        st.text(max_size=10),
        st.integers(0, 2**32 - 1),
    ),
    st.builds(lambda path: {"pipe": {"path": path}}, st.text(max_size=10)),
)
ENDPOINTS = st.fixed_dictionaries(
    {},
    optional={
        "endpoint": st.fixed_dictionaries({}, optional={"address": ADDRESSES, "hostname": st.text(max_size=5)}),
        "health_status": st.sampled_from(["UNKNOWN", "HEALTHY", "UNHEALTHY", "DRAINING", "TIMEOUT", "DEGRADED"]),
        "load_balancing_weight": WEIGHTS,
    },
)
LOCALITIES = st.fixed_dictionaries(
    {},
    optional={
        "lb_endpoints": st.lists(ENDPOINTS, max_size=3),
        "locality": st.fixed_dictionaries(
            {}, optional=dict.fromkeys(("region", "zone", "sub_zone"), st.text(max_size=3))
        ),
        "load_balancing_weight": WEIGHTS,
        "priority": st.integers(0, 128),
    },
)
DROPS = st.fixed_dictionaries(
    {
        "category": st.text(max_size=4),
        "drop_percentage": st.fixed_dictionaries(
            {"numerator": st.integers(0, 100)},
            optional={"denominator": st.sampled_from(["HUNDRED", "TEN_THOUSAND", "MILLION"])},
        ),
    }
)
ASSIGNMENTS = st.fixed_dictionaries(
    {"cluster_name": st.text(max_size=10)},
    optional={
        "endpoints": st.lists(LOCALITIES, max_size=3),
        "policy": st.fixed_dictionaries(
            {},
            optional={
                "drop_overloads": st.lists(DROPS, max_size=2),
                "overprovisioning_factor": st.integers(1, 200),
            },
        ),
    },
)


@given(ASSIGNMENTS)
def test_an_assignment_is_to_envoy_what_its_own_message_would_be(source: dict[str, Any]) -> None:
    ours = endpoint.ClusterLoadAssignment.parse(load_assignment(source, "e"))
    theirs = endpoint.ClusterLoadAssignment.parse(proto_json.encode(CLA, source, "e"))
    assert ours == theirs
    assert bytes(ours) == bytes(theirs), "and no field is left over as unknown"


@pytest.mark.parametrize(
    ("source", "path"),
    [
        (assignment("a", lb_endpoint(), lb_endpoint(metadata={})), ".endpoints[0].lb_endpoints[1]"),
        (assignment("a", lb_endpoint(weight=-1)), ".endpoints[0].lb_endpoints[0]"),
        (assignment("a", lb_endpoint(weight=2**32)), ".endpoints[0].lb_endpoints[0]"),
        (assignment("a", {"load_balancing_weight": "3"}), ".endpoints[0].lb_endpoints[0]"),
        (assignment("a", lb_endpoint(health_status="FINE")), ".endpoints[0].lb_endpoints[0]"),
        (assignment("a", {"endpoint": {"address": {"socket_address": {"adress": "x"}}}}), ".endpoints[0].lb_endpoints[0]"),
        ({"cluster_name": "a", "endpoints": [{"lb_endpoints": 5}]}, ".endpoints[0].lb_endpoints"),
        ({"cluster_name": "a", "endpoints": [5]}, ".endpoints[0]"),
        ({"cluster_name": "a", "endpoints": {}}, ".endpoints"),
        ({"cluster_name": "a", "endpoints": [{"proximity": 1}]}, ".endpoints[0]"),
        ({"cluster_name": "a", "policy": {"nothing": 1}}, ".policy"),
        ({"cluster_name": "a", "policy": 5}, ".policy"),
        ({"cluster_name": 5}, ""),
        ({"name": "a"}, ""),
    ],
)  # fmt: skip
def test_what_an_assignment_has_no_field_for_is_named_with_its_place(source: dict[str, Any], path: str) -> None:
    with pytest.raises(CannotEncode) as caught:
        encode(resources(EDS={"a": source}))
    assert caught.value.problem.path == f"endpoints/a{path}"


def test_each_kind_is_encoded_as_its_type() -> None:
    encoded = encode(
        resources(
            7,
            CDS={"a": eds("a")},
            EDS={"a": assignment("a", lb_endpoint())},
            RDS={"r": {"name": "r"}},
            RTDS={"l": {"name": "l", "layer": {"x": 1}}},
        )
    )
    assert encoded.generation == 7
    assert {kind: list(encoded.of(kind).by_name) for kind in Kind} == {
        Kind.CDS: ["a"],
        Kind.EDS: ["a"],
        Kind.RDS: ["r"],
        Kind.RTDS: ["l"],
    }
    assert cluster.Cluster.parse(encoded.of(Kind.CDS).by_name["a"].body).name == "a"


def test_an_eds_cluster_nobody_assigned_endpoints_to_gets_none() -> None:
    encoded = encode(resources(CDS={"a": eds("a"), "s": {"name": "s", "type": "STATIC"}}))
    (body,) = [each.body for each in encoded.of(Kind.EDS).by_name.values()]
    assert endpoint.ClusterLoadAssignment.parse(body) == endpoint.ClusterLoadAssignment(cluster_name="a")
    assert encoded.assignments == {"a": "a"}


def test_a_cluster_may_ask_for_an_assignment_of_another_name() -> None:
    named = eds("a", eds_cluster_config={"service_name": "pool"})
    encoded = encode(resources(CDS={"a": named, "b": {"name": "b", "type": 3}}))
    assert encoded.assignments == {"a": "pool", "b": "b"}
    assert set(encoded.of(Kind.EDS).by_name) == {"pool", "b"}


def test_versions_are_of_the_content_and_outlive_a_restart() -> None:
    one = encode(resources(1, CDS={"a": eds("a", lb_policy="RANDOM")}, EDS={"a": assignment("a", lb_endpoint())}))
    two = encode(
        resources(9, EDS={"a": assignment("a", lb_endpoint())}, CDS={"a": {"lb_policy": "RANDOM"} | eds("a")})
    )
    for kind in Kind:
        assert one.of(kind).version == two.of(kind).version
    other = encode(resources(9, CDS={"a": eds("a")}, EDS={"a": assignment("a", lb_endpoint(weight=2))}))
    assert other.of(Kind.CDS).version != one.of(Kind.CDS).version
    assert other.of(Kind.EDS).version != one.of(Kind.EDS).version


def test_only_what_changed_is_encoded_again() -> None:
    before = encode(
        resources(
            1, CDS={"a": eds("a"), "b": eds("b")}, EDS={"a": assignment("a", lb_endpoint()), "b": assignment("b")}
        )
    )
    after = encode(
        resources(2, CDS={"a": eds("a"), "b": eds("b")}, EDS={"a": assignment("a", lb_endpoint(weight=2)), "b": assignment("b")}), before
    )  # fmt: skip
    for name in "ab":
        assert after.of(Kind.CDS).by_name[name].body is before.of(Kind.CDS).by_name[name].body
    assert after.of(Kind.EDS).by_name["b"].body is before.of(Kind.EDS).by_name["b"].body
    assert after.of(Kind.EDS).by_name["a"].body != before.of(Kind.EDS).by_name["a"].body
    assert after.of(Kind.CDS).version == before.of(Kind.CDS).version
    assert after.of(Kind.EDS).version != before.of(Kind.EDS).version


def test_the_same_object_is_not_even_looked_at() -> None:
    class Once(dict[str, Any]):
        pass

    source = Once(eds("a"))
    before = encode(resources(1, CDS={"a": source}))
    source["name"] = object()  # would be refused
    assert encode(resources(2, CDS={"a": source}), before).of(Kind.CDS) == before.of(Kind.CDS)


def test_true_is_not_one() -> None:
    """Equal in Python, different in a runtime layer."""
    before = encode(resources(1, RTDS={"l": {"name": "l", "layer": {"x": 1}}}))
    after = encode(resources(2, RTDS={"l": {"name": "l", "layer": {"x": True}}}), before)
    assert after.of(Kind.RTDS).version != before.of(Kind.RTDS).version


def test_names_leave_and_come() -> None:
    before = encode(resources(1, CDS={"a": eds("a"), "b": eds("b")}))
    after = encode(resources(2, CDS={"b": eds("b")}), before)
    assert set(after.of(Kind.CDS).by_name) == set(after.of(Kind.EDS).by_name) == {"b"}
    assert after.of(Kind.CDS).version != before.of(Kind.CDS).version


def test_a_value_json_has_not() -> None:
    with pytest.raises(CannotEncode, match="routes/r: not JSON"):
        encode(resources(RDS={"r": {"name": object()}}))

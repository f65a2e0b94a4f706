"""JSON shapes to Envoy's messages: what is meant arrives, what is not allowed is named with its place."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from envoy_data_plane.envoy.config.cluster import v3 as cluster
from envoy_data_plane.envoy.config.route import v3 as route
from envoy_data_plane.envoy.extensions.upstreams.http import v3 as upstreams
from envoy_data_plane.envoy.service.runtime import v3 as runtime
from envoy_data_plane.google import protobuf as google
from hypothesis import given
from hypothesis import strategies as st

from extproc.codec.proto_json import CannotEncode, encode

TEMPLATE = Path(__file__).parents[2] / "envoy" / "envoy.yaml"
CLUSTER = "envoy.config.cluster.v3.Cluster"
ROUTES = "envoy.config.route.v3.RouteConfiguration"
HTTP = "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


def a_cluster(**fields: Any) -> cluster.Cluster:
    return cluster.Cluster.parse(encode(CLUSTER, fields, "clusters/a"))


def test_names_enums_durations_and_wrappers() -> None:
    read = a_cluster(
        name="a",
        type="STRICT_DNS",
        lb_policy=0,
        connect_timeout="0.25s",
        per_connection_buffer_limit_bytes=32768,
        outlier_detection={"consecutive_5xx": 7, "enforcing_consecutive_5xx": 0, "interval": "5s"},
        common_lb_config={"healthy_panic_threshold": {"value": 0}},
    )
    assert read.type == cluster.ClusterDiscoveryType.STRICT_DNS
    assert read.connect_timeout == timedelta(milliseconds=250)
    assert read.per_connection_buffer_limit_bytes == 32768
    assert read.outlier_detection is not None
    assert read.outlier_detection.consecutive_5xx == 7
    assert read.outlier_detection.enforcing_consecutive_5xx == 0, "0 is not absent"
    assert read.outlier_detection.enforcing_success_rate is None
    assert read.common_lb_config is not None
    assert read.common_lb_config.healthy_panic_threshold is not None
    assert read.common_lb_config.healthy_panic_threshold.value == 0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0s", 0),
        ("5s", 5),
        ("0.1s", 0.1),
        ("1.001s", 1.001),
        ("3600s", 3600),
        ("0.000001s", 1e-6),
        ("0.250000000s", 0.25),
    ],
)
def test_durations_are_exact(text: str, seconds: float) -> None:
    assert a_cluster(connect_timeout=text).connect_timeout == timedelta(seconds=seconds)


def test_a_wrapper_may_be_spelled_out() -> None:
    assert a_cluster(per_connection_buffer_limit_bytes={"value": 5}).per_connection_buffer_limit_bytes == 5


def test_null_is_absent() -> None:
    assert a_cluster(name="a", outlier_detection=None) == a_cluster(name="a")


def test_a_message_of_any_type_is_found_by_its_url() -> None:
    options = {"@type": HTTP, "explicit_http_config": {"http_protocol_options": {}}}
    read = a_cluster(typed_extension_protocol_options={"http": options})
    packed = read.typed_extension_protocol_options["http"]
    assert packed.type_url == HTTP
    inner = upstreams.HttpProtocolOptions.parse(packed.value)
    assert inner.explicit_http_config is not None
    assert inner.explicit_http_config.http_protocol_options is not None


def test_a_well_known_type_inside_stands_under_value() -> None:
    struct = {"@type": "type.googleapis.com/google.protobuf.Struct", "value": {"a": [1, None, "b", True]}}
    read = a_cluster(typed_extension_protocol_options={"x": struct})
    inner = google.Struct.parse(read.typed_extension_protocol_options["x"].value)
    assert inner.to_dict() == {"a": [1, None, "b", True]}


def test_bytes_are_base64() -> None:
    routes = {
        "virtual_hosts": [
            {
                "name": "v",
                "domains": ["*"],
                "routes": [
                    {"match": {"prefix": "/"}, "direct_response": {"status": 200, "body": {"inline_bytes": "aGk="}}}
                ],
            }
        ]
    }
    read = route.RouteConfiguration.parse(encode(ROUTES, routes, "r"))
    direct = read.virtual_hosts[0].routes[0].direct_response
    assert direct is not None
    assert direct.body is not None
    assert direct.body.inline_bytes == b"hi"


def test_a_runtime_layer_holds_any_json() -> None:
    layer = {"a": 0, "b": {"numerator": 8, "denominator": "HUNDRED"}, "c": True, "d": "x", "e": None}
    read = runtime.Runtime.parse(encode("envoy.service.runtime.v3.Runtime", {"name": "n", "layer": layer}, "r"))
    assert read.layer is not None
    assert read.layer.to_dict() == layer


@pytest.mark.parametrize(
    ("fields", "path", "message"),
    [
        ({"nam": "a"}, ".nam", "no such field"),
        ({"connectTimeout": "1s"}, ".connectTimeout", "no such field"),
        ({"circuit_breakers": {"thresholds": [{}, {"max_conections": 1}]}}, ".circuit_breakers.thresholds[1].max_conections", "no such field"),
        ({"circuit_breakers": {"thresholds": [{"max_connections": -1}]}}, ".circuit_breakers.thresholds[0].max_connections", "from 0 to 4294967295"),
        ({"circuit_breakers": {"thresholds": [{"max_connections": 1.5}]}}, ".circuit_breakers.thresholds[0].max_connections", "integer"),
        ({"circuit_breakers": {"thresholds": [{"max_connections": True}]}}, ".circuit_breakers.thresholds[0].max_connections", "integer"),
        ({"circuit_breakers": {"thresholds": {}}}, ".circuit_breakers.thresholds", "expected a list"),
        ({"circuit_breakers": []}, ".circuit_breakers", "expected an object"),
        ({"name": 5}, ".name", "expected a str"),
        ({"name": "\ud800"}, "", "not a valid Cluster"),
        ({"lb_policy": "ROUND_ROBBIN"}, ".lb_policy", "ROUND_ROBIN"),
        ({"lb_policy": 77}, ".lb_policy", "ROUND_ROBIN"),
        ({"lb_policy": True}, ".lb_policy", "ROUND_ROBIN"),
        ({"connect_timeout": 1}, ".connect_timeout", "duration"),
        ({"connect_timeout": "1"}, ".connect_timeout", "duration"),
        ({"connect_timeout": "0.0000001s"}, ".connect_timeout", "microsecond"),
        ({"type": "EDS", "cluster_type": {"name": "x"}}, ".cluster_type", "excludes type"),
        ({"common_lb_config": {"healthy_panic_threshold": {"value": "x"}}}, ".common_lb_config.healthy_panic_threshold.value", "a number"),
        ({"common_lb_config": {"healthy_panic_threshold": 0}}, ".common_lb_config.healthy_panic_threshold", "an object"),
        ({"typed_extension_protocol_options": {"http": {}}}, ".typed_extension_protocol_options[http]", '"@type"'),
        ({"typed_extension_protocol_options": {"http": {"@type": "x/no.such.Thing"}}}, ".typed_extension_protocol_options[http].@type", "no message is called no.such.Thing"),
        ({"typed_extension_protocol_options": {"http": {"@type": "x/os.Path"}}}, ".typed_extension_protocol_options[http].@type", "no message"),
        ({"typed_extension_protocol_options": {"http": {"@type": HTTP, "explicit": {}}}}, ".typed_extension_protocol_options[http].explicit", "no such field"),
        ({"typed_extension_protocol_options": []}, ".typed_extension_protocol_options", "an object"),
    ],
)  # fmt: skip
def test_what_is_not_allowed_is_named_with_its_place(fields: dict[str, Any], path: str, message: str) -> None:
    with pytest.raises(CannotEncode) as caught:
        encode(CLUSTER, fields, "clusters/a")
    assert caught.value.problem.path == f"clusters/a{path}"
    assert message in caught.value.problem.message
    assert caught.value.reason == "cannot_encode"


def test_bytes_that_are_no_base64() -> None:
    body = {"virtual_hosts": [{"routes": [{"direct_response": {"body": {"inline_bytes": "?"}}}]}]}
    with pytest.raises(CannotEncode, match=r"inline_bytes: expected base64"):
        encode(ROUTES, body, "r")


@pytest.mark.parametrize("value", [5, [], None, "x"])
def test_a_resource_that_is_no_object(value: object) -> None:
    with pytest.raises(CannotEncode, match="expected an object"):
        encode(CLUSTER, value, "clusters/a")


def test_every_route_and_cluster_of_the_shipped_configuration() -> None:
    """Its JSON, read back from the message, holds every name and text of the original."""
    template = yaml.safe_load(TEMPLATE.read_text())
    manager = template["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    routes = manager["route_config"]
    read = route.RouteConfiguration.parse(encode(ROUTES, routes, "routes/llm"))
    assert [each.name for each in read.virtual_hosts[0].routes] == [
        each["name"] for each in routes["virtual_hosts"][0]["routes"]
    ]
    assert set(texts(routes)) <= set(texts(read.to_dict()))
    for source in template["static_resources"]["clusters"]:
        copy = cluster.Cluster.parse(encode(CLUSTER, source, source["name"]))
        assert set(texts(source)) <= set(texts(copy.to_dict()))


def texts(value: Any) -> list[str]:
    """Every string in a JSON value but names of enums, since a message leaves out those that stand for 0."""
    if isinstance(value, dict):
        return [text for item in value.values() for text in texts(item)]
    if isinstance(value, list):
        return [text for item in value for text in texts(item)]
    return [value] if isinstance(value, str) and not value.isupper() else []


@given(st.dictionaries(st.text(max_size=8), st.recursive(st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3), max_leaves=8), max_size=4))  # fmt: skip
def test_any_json_survives_a_struct(layer: dict[str, Any]) -> None:
    read = google.Struct.parse(encode("google.protobuf.Struct", layer, "s"))
    assert read.to_dict() == layer


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "type", "connect_timeout", "lb_policy", "circuit_breakers", "thresholds", "metadata", "filter_metadata", "@type"]), inner, max_size=4), max_leaves=10))  # fmt: skip
def test_nothing_but_cannot_encode_comes_out_of_bad_input(value: Any) -> None:
    try:
        encode(CLUSTER, value, "c")
    except CannotEncode as error:
        assert error.problem.path.startswith("c")

"""What holds in the shipped file whatever is laid over it."""

from __future__ import annotations

import json
import re

from extproc.codec import orca
from extproc.codec.access_log import METADATA_NAMESPACE, ORCA_KEY
from extproc.resources.template import load_template
from tests.envoy_config.grpc_engine import CHECK, MANAGEMENT, SERVED
from tests.resources.configs import MANAGER, at, by_name, clusters, routes

TEMPLATE = load_template()


def test_every_answer_of_a_route_is_an_openai_error() -> None:
    for each in routes(TEMPLATE).values():
        if "direct_response" in each:
            error = json.loads(each["direct_response"]["body"]["inline_string"])["error"]
            assert set(error) == {"message", "type", "param", "code"}
            assert at(each, "response_headers_to_add", 0, "header", "value") == "application/json"


def test_every_local_reply_is_an_openai_error() -> None:
    for mapper in at(TEMPLATE, *MANAGER, "local_reply_config", "mappers"):
        written = at(mapper, "body_format_override", "text_format_source", "inline_string")
        assert set(json.loads(written)["error"]) == {"message", "type", "param", "code"}
        assert at(mapper, "body_format_override", "content_type") == "application/json"


def test_both_examples_are_bounded_and_watched_alike() -> None:
    over_http, over_grpc = clusters(TEMPLATE)["engine-1"], clusters(TEMPLATE)["engine-1-grpc"]
    for key in ("circuit_breakers", "outlier_detection", "common_lb_config", "upstream_connection_options"):
        assert over_http[key] == over_grpc[key]


def test_grpc_methods_are_the_engines_own_words() -> None:
    """Every method Triton has is served or refused; none is forgotten."""
    from tritonclient.grpc import service_pb2

    service = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    methods = {f"/{service.full_name}/{method.name}" for method in service.methods}
    assert methods | {CHECK} == SERVED | MANAGEMENT
    for name in ("triton-grpc", "triton-grpc-critical"):
        served = re.compile(at(routes(TEMPLATE)[name], "match", "safe_regex", "regex"))
        assert {each for each in methods if served.fullmatch(each)} == SERVED & methods
        assert served.fullmatch(CHECK)
        assert not served.fullmatch("/grpc.health.v1.Health/Watch")


def test_loads_are_read_before_they_are_removed() -> None:
    """On the way out filters run backwards: the header becomes metadata before anybody else sees the answer."""
    filters = by_name(at(TEMPLATE, *MANAGER, "http_filters"))
    assert list(filters)[-2:] == ["engine-load", "envoy.filters.http.router"]
    (rule,) = at(filters["engine-load"], "typed_config", "response_rules")
    assert (rule["header"], rule["remove"]) == (orca.HEADER, True)
    kept = rule["on_header_present"]
    assert (kept["metadata_namespace"], kept["key"]) == (METADATA_NAMESPACE, ORCA_KEY)

"""Discovery messages, against Envoy's own."""

from __future__ import annotations

import pytest
from envoy_data_plane.envoy.config.core import v3 as core
from envoy_data_plane.envoy.service.discovery import v3 as envoy
from envoy_data_plane.google.rpc import Status
from google.protobuf.message import DecodeError

from extproc.codec import discovery
from extproc.model.xds import EncodedResource, Kind, Push, Subscribe


def test_a_first_request_tells_the_node_and_the_names() -> None:
    message = envoy.DiscoveryRequest(
        node=core.Node(id="sidecar-1", cluster="llm", user_agent_name="envoy"),
        resource_names=["b", "a"],
        type_url=Kind.EDS.value,
    )
    assert discovery.request(bytes(message)) == Subscribe(
        Kind.EDS, frozenset("ab"), node_id="sidecar-1", node_cluster="llm", type_url=Kind.EDS.value
    )


def test_an_answer_names_its_nonce_and_what_was_wrong() -> None:
    message = envoy.DiscoveryRequest(
        version_info="v1",
        type_url=Kind.CDS.value,
        response_nonce="7",
        error_detail=Status(code=13, message="no such thing"),
    )
    read = discovery.request(bytes(message))
    assert (read.kind, read.version, read.nonce, read.error) == (Kind.CDS, "v1", "7", "no such thing")
    assert read.names == frozenset()


def test_an_error_without_a_word_is_an_error() -> None:
    message = envoy.DiscoveryRequest(type_url=Kind.CDS.value, response_nonce="7", error_detail=Status(code=13))
    assert discovery.request(bytes(message)).error == ""


def test_a_type_that_is_not_served_keeps_its_url() -> None:
    read = discovery.request(bytes(envoy.DiscoveryRequest(type_url="type.googleapis.com/other.Thing")))
    assert (read.kind, read.type_url) == (None, "type.googleapis.com/other.Thing")


def test_bytes_that_are_no_message() -> None:
    with pytest.raises(DecodeError):
        discovery.request(b"\xff\xff\xff")


def test_a_push_is_a_response_with_its_resources_in_order() -> None:
    resources = {name: EncodedResource("v", name.encode(), {}) for name in ("b", "a")}
    read = envoy.DiscoveryResponse.parse(discovery.response(Push(Kind.RDS, "v9", "3", 4, resources)))
    assert (read.version_info, read.nonce, read.type_url) == ("v9", "3", Kind.RDS.value)
    assert [(each.type_url, each.value) for each in read.resources] == [
        (Kind.RDS.value, b"b"),
        (Kind.RDS.value, b"a"),
    ]

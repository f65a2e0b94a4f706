"""Messages of Envoy to events, commands to messages of ours, byte by byte."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.codec import ext_proc as codec
from extproc.codec.wire import ext_proc_pb2 as pb
from extproc.model.commands import Continue, Reject
from extproc.model.events import (
    EmptyReceived,
    RequestBodyReceived,
    RequestHeadersReceived,
    RequestTrailersReceived,
    ResponseReceived,
)

OVERWRITE = pb.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD


def headers_message(*pairs: tuple[str, bytes], end: bool = False, in_value: bool = False) -> Any:
    message = pb.ProcessingRequest()
    message.request_headers.end_of_stream = end
    message.request_headers.SetInParent()
    for name, value in pairs:
        header = message.request_headers.headers.headers.add(key=name)
        if in_value:
            header.value = value.decode()
        else:
            header.raw_value = value
    return message


def test_the_method_is_envoys() -> None:
    assert f"/{codec.METHOD_SERVICE}/{codec.METHOD_NAME}" == "/envoy.service.ext_proc.v3.ExternalProcessor/Process"


@pytest.mark.parametrize("in_value", [False, True])
@pytest.mark.parametrize("end", [False, True])
def test_headers(end: bool, in_value: bool) -> None:
    pairs = ((":method", b"POST"), (":path", b"/x"), ("x-multi", b"1"), ("x-multi", b"2"), ("x-empty", b""))
    event = codec.event(headers_message(*pairs, end=end, in_value=in_value).SerializeToString())
    assert event == RequestHeadersReceived(pairs, end, {}, "")


@given(st.binary(max_size=40))
def test_header_values_are_any_bytes(value: bytes) -> None:
    event = codec.event(headers_message(("x", value)).SerializeToString())
    assert isinstance(event, RequestHeadersReceived)
    assert event.headers == (("x", value),)


def test_raw_value_goes_before_value() -> None:
    message = headers_message()
    message.request_headers.headers.headers.add(key="x", value="text", raw_value=b"\xff")
    message.request_headers.headers.headers.add(key="y", value="é")
    event = codec.event(message.SerializeToString())
    assert isinstance(event, RequestHeadersReceived)
    assert event.headers == (("x", b"\xff"), ("y", "é".encode()))


def test_attributes_of_every_filter_that_are_strings() -> None:
    message = headers_message()
    message.attributes["envoy.filters.http.ext_proc"].update(
        {"source.address": "10.0.0.1:5", "connection.mtls": True, "source.port": 5, "empty": "", "list": ["a"]}
    )
    message.attributes["another"].update({"connection.subject_peer_certificate": "CN=a", "none": None})
    event = codec.event(message.SerializeToString())
    assert isinstance(event, RequestHeadersReceived)
    assert event.attributes == {"source.address": "10.0.0.1:5", "connection.subject_peer_certificate": "CN=a"}


MODES = ["NONE", "STREAMED", "BUFFERED", "BUFFERED_PARTIAL", "FULL_DUPLEX_STREAMED", "GRPC"]


@pytest.mark.parametrize(("number", "mode"), list(enumerate(MODES)))
def test_body_modes_by_envoys_names(number: int, mode: str) -> None:
    message = headers_message()
    message.protocol_config.request_body_mode = number
    message.protocol_config.SetInParent()
    event = codec.event(message.SerializeToString())
    assert isinstance(event, RequestHeadersReceived)
    assert event.body_mode == mode


@pytest.mark.parametrize("number", [6, 99, -1])
def test_a_body_mode_of_a_later_envoy_is_none_that_can_be_read(number: int) -> None:
    message = headers_message()
    message.protocol_config.request_body_mode = number
    event = codec.event(message.SerializeToString())
    assert isinstance(event, RequestHeadersReceived)
    assert event.body_mode not in ("", "BUFFERED", "NONE")


@pytest.mark.parametrize("body", [b"", b"{}", b"\xff\x00" * 1000])
@pytest.mark.parametrize("end", [False, True])
def test_bodies(body: bytes, end: bool) -> None:
    message = pb.ProcessingRequest()
    message.request_body.SetInParent()
    message.request_body.body = body
    message.request_body.end_of_stream = end
    assert codec.event(message.SerializeToString()) == RequestBodyReceived(body, end)


@pytest.mark.parametrize("phase", ["response_headers", "response_body", "response_trailers"])
def test_responses(phase: str) -> None:
    message = pb.ProcessingRequest()
    getattr(message, phase).SetInParent()
    assert codec.event(message.SerializeToString()) == ResponseReceived(phase)


def test_trailers_and_nothing() -> None:
    message = pb.ProcessingRequest()
    message.request_trailers.SetInParent()
    assert codec.event(message.SerializeToString()) == RequestTrailersReceived()
    assert codec.event(b"") == EmptyReceived()


def test_a_kind_of_message_we_do_not_know() -> None:
    unknown = bytes([50 << 3 & 0x7F | 0x82, 50 >> 4]) + b"\x03abc"
    assert codec.event(unknown) == EmptyReceived()


def test_fields_we_do_not_know_are_ignored() -> None:
    message = headers_message(("a", b"b")).SerializeToString() + bytes([100 << 3 & 0x7F | 0x80, 100 >> 4, 1])
    event = codec.event(message)
    assert isinstance(event, RequestHeadersReceived)
    assert event.headers == (("a", b"b"),)


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=60))
def test_any_bytes_are_an_event_or_no_message(message: bytes) -> None:
    try:
        event = codec.event(message)
    except DecodeError:
        return
    kinds = (RequestHeadersReceived, RequestBodyReceived, RequestTrailersReceived, ResponseReceived, EmptyReceived)
    assert isinstance(event, kinds)


# --- answers


def answer(command: Continue) -> Any:
    return pb.ProcessingResponse.FromString(codec.continued(command))


@pytest.mark.parametrize("phase", ["request_headers", "request_body", "response_headers", "response_body"])
def test_a_bare_continue(phase: str) -> None:
    response = answer(Continue(phase))
    assert response.WhichOneof("response") == phase
    common = getattr(response, phase).response
    assert getattr(response, phase).HasField("response")
    assert not common.HasField("header_mutation")
    assert not common.HasField("body_mutation")
    assert common.clear_route_cache is False
    assert not response.HasField("dynamic_metadata")
    assert not response.HasField("mode_override")


@pytest.mark.parametrize("phase", ["request_trailers", "response_trailers"])
def test_trailers_are_let_through(phase: str) -> None:
    response = answer(Continue(phase))
    assert response.WhichOneof("response") == phase
    assert not getattr(response, phase).HasField("header_mutation")


def test_a_full_answer() -> None:
    response = answer(
        Continue(
            "request_body",
            set_headers=(("x-a", b"1"), ("x-b", b"\xff\x00")),
            body_headers=(("content-length", b"3"),),
            body=b"\xff{}",
            clear_route_cache=True,
            metadata={"tier": "strict", "tenant": "é"},
        )
    )
    common = response.request_body.response
    assert [
        (o.header.key, o.header.raw_value, o.header.value, o.append_action)
        for o in common.header_mutation.set_headers
    ] == [
        ("x-a", b"1", "", OVERWRITE),
        ("x-b", b"\xff\x00", "", OVERWRITE),
        ("content-length", b"3", "", OVERWRITE),
    ]
    assert list(common.header_mutation.remove_headers) == []
    assert common.body_mutation.WhichOneof("mutation") == "body"
    assert common.body_mutation.body == b"\xff{}"
    assert common.clear_route_cache is True
    assert dict(response.dynamic_metadata["llm"]) == {"tier": "strict", "tenant": "é"}
    assert list(response.dynamic_metadata) == ["llm"]
    assert not response.HasField("mode_override")


def test_an_empty_body_is_a_body() -> None:
    mutation = answer(Continue("request_body", body=b"")).request_body.response.body_mutation
    assert mutation.WhichOneof("mutation") == "body"
    assert mutation.body == b""


def test_metadata_of_one_answer_is_not_that_of_another() -> None:
    first = answer(Continue("request_headers", metadata={"a": "1"}))
    second = answer(Continue("request_headers", metadata={"a": "2"}))
    again = answer(Continue("request_headers", metadata={"a": "1"}))
    assert dict(first.dynamic_metadata["llm"]) == dict(again.dynamic_metadata["llm"]) == {"a": "1"}
    assert dict(second.dynamic_metadata["llm"]) == {"a": "2"}


def test_the_route_is_chosen_anew() -> None:
    response = answer(Continue("request_headers", set_headers=(("x-llm-pool", b"a"),), clear_route_cache=True))
    assert response.request_headers.response.clear_route_cache is True


def test_a_body_nobody_reads_is_not_buffered() -> None:
    override = answer(Continue("request_headers", stream_body=True)).mode_override
    mode = pb.ProcessingMode
    assert (override.request_header_mode, override.response_header_mode) == (mode.SEND, mode.SKIP)
    assert (override.request_body_mode, override.response_body_mode) == (pb.BodySendMode.NONE, pb.BodySendMode.NONE)
    assert (override.request_trailer_mode, override.response_trailer_mode) == (mode.SKIP, mode.SKIP)


@pytest.mark.parametrize("status", [400, 404, 413, 415, 429, 503])
def test_a_rejection(status: int) -> None:
    command = Reject(
        status, "too_large", (("content-type", b"application/json"), ("retry-after", b"1")), b'{"a":"\xff"}'
    )
    response = pb.ProcessingResponse.FromString(codec.rejected(command))
    assert response.WhichOneof("response") == "immediate_response"
    immediate = response.immediate_response
    assert immediate.status.code == status
    assert immediate.body == b'{"a":"\xff"}'
    assert immediate.details == "llm_too_large"
    assert [(o.header.key, o.header.raw_value, o.append_action) for o in immediate.headers.set_headers] == [
        ("content-type", b"application/json", OVERWRITE),
        ("retry-after", b"1", OVERWRITE),
    ]

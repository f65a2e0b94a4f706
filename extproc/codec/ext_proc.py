"""ext_proc messages to events, commands to ext_proc messages.

Header values travel in `raw_value`: `value` cannot hold every byte a header may have.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct, Value

from extproc.codec.wire import ext_proc_pb2 as pb
from extproc.model.commands import Continue, Reject
from extproc.model.events import (
    EmptyReceived,
    Event,
    RequestBodyReceived,
    RequestHeadersReceived,
    RequestTrailersReceived,
    ResponseReceived,
)

METHOD_SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
METHOD_NAME = "Process"
METADATA_NAMESPACE = "llm"

_OVERWRITE = pb.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
_RESPONSES = frozenset({"response_headers", "response_body", "response_trailers"})
_STREAM_BODY = pb.ProcessingResponse(
    mode_override=pb.ProcessingMode(
        request_header_mode=pb.ProcessingMode.SEND,
        response_header_mode=pb.ProcessingMode.SKIP,
        request_body_mode=pb.BodySendMode.NONE,
        response_body_mode=pb.BodySendMode.NONE,
        request_trailer_mode=pb.ProcessingMode.SKIP,
        response_trailer_mode=pb.ProcessingMode.SKIP,
    )
).SerializeToString()


def _tag(message: type[Message], field: str) -> bytes:
    """The tag of a length-delimited field, read off the generated message."""
    return bytes([message.DESCRIPTOR.fields_by_name[field].number << 3 | 2])


_PHASE_TAGS = {
    phase: _tag(pb.ProcessingResponse, phase)
    for phase in (
        "request_headers",
        "response_headers",
        "request_body",
        "response_body",
        "request_trailers",
        "response_trailers",
    )
}
_RESPONSE = _tag(pb.BodyResponse, "response")
_HEADER_MUTATION = _tag(pb.CommonResponse, "header_mutation")
_BODY_MUTATION = _tag(pb.CommonResponse, "body_mutation")
_BODY = _tag(pb.BodyMutation, "body")
_CLEAR_ROUTE_CACHE = pb.CommonResponse(clear_route_cache=True).SerializeToString()
_SMALL = [bytes([value]) for value in range(0x80)]


def event(message: bytes) -> Event:
    """One serialized ProcessingRequest as an event; DecodeError of protobuf for bytes that are none."""
    request = pb.ProcessingRequest.FromString(message)
    kind = request.WhichOneof("request")
    if kind == "request_headers":
        return _headers(request)
    if kind == "request_body":
        return RequestBodyReceived(request.request_body.body, request.request_body.end_of_stream)
    if kind == "request_trailers":
        return RequestTrailersReceived()
    return ResponseReceived(kind) if kind in _RESPONSES else EmptyReceived()


def _headers(request: pb.ProcessingRequest) -> RequestHeadersReceived:
    http = request.request_headers
    pairs = tuple((h.key, h.raw_value or h.value.encode()) for h in http.headers.headers)
    mode = (
        pb.BodySendMode.Name(request.protocol_config.request_body_mode)
        if request.HasField("protocol_config")
        else ""
    )
    return RequestHeadersReceived(pairs, http.end_of_stream, _attributes(request.attributes), mode)


def _attributes(groups: Mapping[str, Struct]) -> dict[str, str]:
    """String attributes by name; Envoy groups them by the filter that asked."""
    return {
        name: value.string_value
        for group in groups.values()
        for name, value in group.fields.items()
        if value.string_value
    }


def continued(command: Continue) -> bytes:
    """A serialized ProcessingResponse that lets the phase go on.

    Written by hand around the body: the generated message would copy a large body twice more, into the message
    and out of it, and header options repeat from request to request.
    """
    phase = _PHASE_TAGS[command.phase]
    if command.phase.endswith("trailers"):
        return phase + b"\x00"
    common: list[bytes] = []
    if command.set_headers:
        options = b"".join(_option(name, value) for name, value in command.set_headers)
        common += (_HEADER_MUTATION, varint(len(options)), options)
    if command.body is not None:
        size = varint(len(command.body))
        common += (_BODY_MUTATION, varint(1 + len(size) + len(command.body)), _BODY, size, command.body)
    if command.clear_route_cache:
        common.append(_CLEAR_ROUTE_CACHE)
    length = sum(map(len, common))
    head = varint(length)
    chunks = [phase, varint(1 + len(head) + length), _RESPONSE, head, *common]
    if command.metadata is not None:
        chunks.append(_metadata(tuple(command.metadata.items())))
    if command.stream_body:
        chunks.append(_STREAM_BODY)
    return b"".join(chunks)


def rejected(command: Reject) -> bytes:
    """A serialized ProcessingResponse that answers the client; `reason` goes to response code details."""
    response = pb.ProcessingResponse()
    immediate = response.immediate_response
    immediate.status.code = command.status
    for name, value in command.headers:
        immediate.headers.set_headers.append(_header_option(name, value))
    immediate.body = command.body
    immediate.details = f"llm_{command.reason}"
    return response.SerializeToString()


def varint(value: int) -> bytes:
    """A length as protobuf writes it: seven bits a byte, low ones first."""
    if value < 0x80:
        return _SMALL[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _header_option(name: str, value: bytes) -> pb.HeaderValueOption:
    header = pb.HeaderValue(key=name, raw_value=value)
    return pb.HeaderValueOption(header=header, append_action=_OVERWRITE)


@lru_cache(maxsize=4096)
def _option(name: str, value: bytes) -> bytes:
    """One element of HeaderMutation.set_headers."""
    mutation = pb.HeaderMutation(set_headers=[_header_option(name, value)])
    return mutation.SerializeToString()


@lru_cache(maxsize=1024)
def _metadata(pairs: tuple[tuple[str, str], ...]) -> bytes:
    inner = Struct(fields={name: Value(string_value=value) for name, value in pairs})
    struct = Struct(fields={METADATA_NAMESPACE: Value(struct_value=inner)})
    return pb.ProcessingResponse(dynamic_metadata=struct).SerializeToString()

"""ext_proc messages to events, commands to ext_proc messages.

Header values travel in `raw_value`: `value` cannot hold every byte a header may have.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

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
_STREAM_BODY = pb.ProcessingMode(
    request_header_mode=pb.ProcessingMode.SEND,
    response_header_mode=pb.ProcessingMode.SKIP,
    request_body_mode=pb.BodySendMode.NONE,
    response_body_mode=pb.BodySendMode.NONE,
    request_trailer_mode=pb.ProcessingMode.SKIP,
    response_trailer_mode=pb.ProcessingMode.SKIP,
)


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
    """A serialized ProcessingResponse that lets the phase go on."""
    response = pb.ProcessingResponse()
    if command.phase.endswith("trailers"):
        getattr(response, command.phase).SetInParent()
        return response.SerializeToString()
    common = getattr(response, command.phase).response
    common.SetInParent()
    if command.set_headers:
        common.header_mutation.CopyFrom(_header_mutation(command.set_headers))
        common.clear_route_cache = command.clear_route_cache
    if command.body is not None:
        common.body_mutation.body = command.body
    if command.metadata is not None:
        response.dynamic_metadata.CopyFrom(_metadata(tuple(command.metadata.items())))
    if command.stream_body:
        response.mode_override.CopyFrom(_STREAM_BODY)
    return response.SerializeToString()


def rejected(command: Reject) -> bytes:
    """A serialized ProcessingResponse that answers the client; `reason` goes to response code details."""
    response = pb.ProcessingResponse()
    immediate = response.immediate_response
    immediate.status.code = command.status
    immediate.headers.CopyFrom(_header_mutation(command.headers))
    immediate.body = command.body
    immediate.details = f"llm_{command.reason}"
    return response.SerializeToString()


def _header_mutation(pairs: tuple[tuple[str, bytes], ...]) -> pb.HeaderMutation:
    mutation = pb.HeaderMutation()
    for name, value in pairs:
        option = mutation.set_headers.add(append_action=_OVERWRITE)
        option.header.key = name
        option.header.raw_value = value
    return mutation


@lru_cache(maxsize=1024)
def _metadata(pairs: tuple[tuple[str, str], ...]) -> Struct:
    inner = Struct(fields={name: Value(string_value=value) for name, value in pairs})
    return Struct(fields={METADATA_NAMESPACE: Value(struct_value=inner)})

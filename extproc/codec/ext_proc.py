"""ext_proc messages to events, commands to ext_proc messages.

Header values travel in `raw_value`: `value` cannot hold every byte a header may have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

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

V = TypeVar("V")

MAX_ENCODED = 4096
_ENCODED: dict[int, tuple[object, bytes]] = {}
"""Keeps each value, so that its identity stays its own."""

_OVERWRITE = pb.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
_BODY_MODES: dict[int, str] = {number: name for name, number in pb.BodySendMode.items()}
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
_SET_HEADERS = _tag(pb.HeaderMutation, "set_headers")
_HEADER = _tag(pb.HeaderValueOption, "header")
_KEY = _tag(pb.HeaderValue, "key")
_RAW_VALUE = _tag(pb.HeaderValue, "raw_value")
_OVERWRITES = pb.HeaderValueOption(append_action=_OVERWRITE).SerializeToString()
_CLEAR_ROUTE_CACHE = pb.CommonResponse(clear_route_cache=True).SerializeToString()


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL = [_varint(value) for value in range(1 << 14)]


def _bare(phase: str) -> bytes:
    response = pb.ProcessingResponse()
    message = getattr(response, phase)
    message.SetInParent()
    if not phase.endswith("trailers"):
        message.response.SetInParent()
    return response.SerializeToString()


_BARE = {phase: _bare(phase) for phase in _PHASE_TAGS}
"""Answers that change nothing: half of all."""


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
    pairs = tuple([(h.key, h.raw_value or h.value.encode()) for h in http.headers.headers])
    mode = ""
    if request.HasField("protocol_config"):
        mode = _BODY_MODES.get(request.protocol_config.request_body_mode, "UNKNOWN")
    return RequestHeadersReceived(pairs, http.end_of_stream, Attributes(request), mode)


class Attributes(Mapping[str, str]):
    """String attributes by name, looked up when somebody asks: most requests are judged without any.

    Envoy groups them by the filter that asked for them.
    """

    __slots__ = ("_request",)

    def __init__(self, request: pb.ProcessingRequest) -> None:
        self._request = request

    def __getitem__(self, name: str) -> str:
        for group in self._request.attributes.values():
            if name in group.fields and group.fields[name].string_value:
                return group.fields[name].string_value
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        groups = self._request.attributes.values()
        return (name for group in groups for name, value in group.fields.items() if value.string_value)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def continued(command: Continue) -> bytes:
    """A serialized ProcessingResponse that lets the phase go on.

    Written by hand around the body: the generated message would copy a large body twice more, into the message
    and out of it, and headers repeat from request to request.
    """
    if command.metadata is None and not command.set_headers and command.body is None and not command.stream_body:
        return _BARE[command.phase]
    common: list[bytes] = []
    if command.set_headers:
        options = _remembered(command.set_headers, _options)
        for name, value in command.body_headers:
            options += _option(name, value)
        common += (_HEADER_MUTATION, varint(len(options)), options)
    if command.body is not None:
        size = varint(len(command.body))
        common += (_BODY_MUTATION, varint(1 + len(size) + len(command.body)), _BODY, size, command.body)
    if command.clear_route_cache:
        common.append(_CLEAR_ROUTE_CACHE)
    length = sum(map(len, common))
    head = varint(length)
    chunks = [_PHASE_TAGS[command.phase], varint(1 + len(head) + length), _RESPONSE, head, *common]
    if command.metadata is not None:
        chunks.append(_remembered(command.metadata, _metadata))
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
    return _SMALL[value] if value < len(_SMALL) else _varint(value)


def _header_option(name: str, value: bytes) -> pb.HeaderValueOption:
    header = pb.HeaderValue(key=name, raw_value=value)
    return pb.HeaderValueOption(header=header, append_action=_OVERWRITE)


def _remembered(value: V, encode: Callable[[V], bytes]) -> bytes:
    """The encoded form of a value that equal requests share: found by identity, which costs no hash."""
    known = _ENCODED.get(id(value))
    if known is not None and known[0] is value:
        return known[1]
    if len(_ENCODED) >= MAX_ENCODED:
        _ENCODED.clear()
    encoded = encode(value)
    _ENCODED[id(value)] = (value, encoded)
    return encoded


def _options(pairs: tuple[tuple[str, bytes], ...]) -> bytes:
    """Elements of HeaderMutation.set_headers."""
    return b"".join([_option(name, value) for name, value in pairs])


def _option(name: str, value: bytes) -> bytes:
    """One of them: a HeaderValueOption that overwrites."""
    key = name.encode()
    header = b"".join((_KEY, varint(len(key)), key, _RAW_VALUE, varint(len(value)), value))
    size = varint(len(header))
    length = varint(1 + len(size) + len(header) + len(_OVERWRITES))
    return b"".join((_SET_HEADERS, length, _HEADER, size, header, _OVERWRITES))


def _metadata(values: Mapping[str, str]) -> bytes:
    inner = Struct(fields={name: Value(string_value=value) for name, value in values.items()})
    struct = Struct(fields={METADATA_NAMESPACE: Value(struct_value=inner)})
    return pb.ProcessingResponse(dynamic_metadata=struct).SerializeToString()

"""Envoy's access log messages to samples.

One entry is one finished request. Entries Envoy writes while a request still runs are left out: they would count
it twice.
"""

from __future__ import annotations

from contextlib import suppress

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from msgspec import Struct

from extproc.codec import orca
from extproc.codec.wire import access_log_pb2 as pb
from extproc.model.telemetry import AccessSample
from extproc.model.topology import authority

METHOD_SERVICE = "envoy.service.accesslog.v3.AccessLogService"
METHOD_NAME = "StreamAccessLogs"
METADATA_NAMESPACE = "llm"

ORCA_KEY = "orca"
"""Where a header_to_metadata filter that also removes the header has put the engine's load report. A route that
removes it does so before the log is written, and the log would have nothing to tell."""

RESPONSE = b""
"""A serialized StreamAccessLogsResponse, which has no fields."""

_FINISHED = frozenset({pb.AccessLogType.NotSet, pb.AccessLogType.DownstreamEnd})
"""Types of entries that end a request; older Envoys set none."""

_FLAGS = {
    "failed_local_healthcheck": "LH",
    "no_healthy_upstream": "UH",
    "upstream_request_timeout": "UT",
    "local_reset": "LR",
    "upstream_remote_reset": "UR",
    "upstream_connection_failure": "UF",
    "upstream_connection_termination": "UC",
    "upstream_overflow": "UO",
    "no_route_found": "NR",
    "delay_injected": "DI",
    "fault_injected": "FI",
    "rate_limited": "RL",
    "unauthorized_details": "UAEX",
    "rate_limit_service_error": "RLSE",
    "downstream_connection_termination": "DC",
    "upstream_retry_limit_exceeded": "URX",
    "stream_idle_timeout": "SI",
    "invalid_envoy_request_headers": "IH",
    "downstream_protocol_error": "DPE",
    "upstream_max_stream_duration_reached": "UMSDR",
    "response_from_cache_filter": "RFCF",
    "no_filter_config_found": "NFCF",
    "duration_timeout": "DT",
    "upstream_protocol_error": "UPE",
    "no_cluster_found": "NC",
    "overload_manager": "OM",
    "dns_resolution_failure": "DF",
    "downstream_remote_reset": "DR",
}
"""Envoy's short spelling of each, as its text log writes them (ResponseFlagUtils)."""

_GRPC_STATUS = "grpc-status"
_HTTP_OF_GRPC = {
    b"1": 499,
    b"2": 500,
    b"3": 400,
    b"4": 504,
    b"5": 404,
    b"6": 409,
    b"7": 403,
    b"8": 429,
    b"9": 400,
    b"10": 409,
    b"11": 400,
    b"12": 501,
    b"13": 500,
    b"14": 503,
    b"15": 500,
    b"16": 401,
}
"""The HTTP status of a gRPC one, as google/rpc/code.proto has it; a failed call travels as 200."""

MAX_KNOWN_FLAGS = 1024
_KNOWN_FLAGS: dict[bytes, tuple[str, ...]] = {b"": ()}


class Batch(Struct, frozen=True):
    """Samples of one message, in order. `running`: entries of requests not yet finished; `unreadable`: the rest."""

    samples: list[AccessSample]
    running: int
    unreadable: int


def batch(message: bytes) -> Batch:
    """One serialized StreamAccessLogsMessage; DecodeError of protobuf for bytes that are none."""
    entries = pb.StreamAccessLogsMessage.FromString(message).http_logs.log_entry
    samples, running = [], 0
    for entry in entries:
        common = entry.common_properties
        if common.access_log_type not in _FINISHED or common.intermediate_log_entry:
            running += 1
        elif (total_s := _total_s(common)) is not None:
            with suppress(DecodeError):
                samples.append(_sample(common, entry.response, total_s))
    return Batch(samples, running, len(entries) - len(samples) - running)


def _sample(common: pb.AccessLogCommon, response: pb.HTTPResponseProperties, total_s: float) -> AccessSample:
    about, load = _about(common.metadata.filter_metadata.get(METADATA_NAMESPACE, b""))
    load = load or response.response_headers.get(orca.HEADER, b"")
    has_first_byte = common.HasField("time_to_first_upstream_rx_byte")
    return AccessSample(
        upstream=_address(common.upstream_remote_address),
        # Where Envoy has no cluster, the pool it was to be is as good a name for what went wrong.
        cluster=_text(common.upstream_cluster) or about.get("pool", ""),
        route=_text(common.route_name),
        status=_status(response),
        flags=_flags(common.response_flags),
        first_byte_s=_seconds(common.time_to_first_upstream_rx_byte) if has_first_byte else None,
        total_s=total_s,
        tier=about.get("tier", ""),
        scenario=about.get("scenario", ""),
        request_class=about.get("class", ""),
        tenant=about.get("tenant", ""),
        params=about.get("params", ""),
        length=about.get("length", ""),
        fallback=about.get("fallback", ""),
        probe=bool(about.get("probe")),
        orca=orca.report(load) if load else {},
    )


def _about(raw: bytes) -> tuple[dict[str, str], bytes]:
    """What the decision said of itself, and the engine's load report. Not remembered: Envoy writes the fields of
    equal decisions in another order each time."""
    fields = pb.Strings.FromString(raw).fields
    load = fields[ORCA_KEY].string_value
    return {name: _text(value.string_value) for name, value in fields.items()}, load


def _total_s(common: pb.AccessLogCommon) -> float | None:
    """Until the client had the last byte; where it never had, until Envoy was done with the request."""
    if common.HasField("time_to_last_downstream_tx_byte"):
        return _seconds(common.time_to_last_downstream_tx_byte)
    return _seconds(common.duration) if common.HasField("duration") else None


def _seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9


def _address(address: pb.Address) -> str:
    """`ip:port`, `[ip]:port` for IPv6, the path of a pipe, "" for none."""
    socket = address.socket_address
    host = socket.address
    if not host:
        return address.pipe.path
    return authority(host, socket.port_value)


def _status(response: pb.HTTPResponseProperties) -> int:
    """Of HTTP; of a gRPC call whose status is logged, that one's in HTTP's terms."""
    status = response.response_code.value
    if status != 200:
        return status
    grpc = response.response_trailers.get(_GRPC_STATUS) or response.response_headers.get(_GRPC_STATUS)
    return status if grpc is None else _HTTP_OF_GRPC.get(grpc, status)


def _flags(raw: bytes) -> tuple[str, ...]:
    """Envoy spells equal flags in equal bytes, so that they are parsed once."""
    known = _KNOWN_FLAGS.get(raw)
    if known is None:
        if len(_KNOWN_FLAGS) >= MAX_KNOWN_FLAGS:
            _KNOWN_FLAGS.clear()
        fields = pb.ResponseFlags.FromString(raw).ListFields()
        known = _KNOWN_FLAGS[raw] = tuple(_FLAGS[field.name] for field, _ in fields)
    return known


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")

"""Envoy's log messages, encoded by its own full messages, decoded by the few fields of ours."""

from __future__ import annotations

import datetime as dt
from contextlib import suppress
from typing import Any

import betterproto2
import pytest
from envoy_data_plane.envoy.config.core import v3 as core
from envoy_data_plane.envoy.data.accesslog import v3 as data
from envoy_data_plane.envoy.service.accesslog import v3 as service
from envoy_data_plane.google import protobuf as google
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from extproc.codec import access_log as codec
from extproc.codec.wire import access_log_pb2 as pb
from extproc.model.telemetry import AccessSample

METADATA = {
    "tier": "strict",
    "scenario": "order_query",
    "class": "critical",
    "tenant": "acme",
    "params": "default@7",
    "rule": "label",
    "pool": "chat",
}


def seconds(value: float) -> dt.timedelta:
    return dt.timedelta(seconds=value)


def address(ip: str, port: int) -> core.Address:
    return core.Address(socket_address=core.SocketAddress(address=ip, port_value=port))


def metadata(values: dict[str, Any], namespace: str = "llm") -> core.Metadata:
    kinds = {str: "string_value", float: "number_value", bool: "bool_value"}
    fields = {name: google.Value(**{kinds[type(value)]: value}) for name, value in values.items()}
    other = google.Struct(fields={"tier": google.Value(string_value="another filter's")})
    return core.Metadata(filter_metadata={"other": other, namespace: google.Struct(fields=fields)})


def entry(
    *,
    status: int | None = 200,
    headers: dict[str, str] | None = None,
    trailers: dict[str, str] | None = None,
    **common: Any,
) -> data.HttpAccessLogEntry:
    """An answered request with all that Envoy writes besides what is read."""
    usual: dict[str, Any] = {
        "downstream_remote_address": address("192.0.2.9", 40000),
        "downstream_local_address": address("192.0.2.1", 10000),
        "upstream_local_address": address("10.0.0.100", 50000),
        "start_time": dt.datetime(2026, 5, 1, tzinfo=dt.UTC),
        "time_to_last_rx_byte": seconds(0.001),
        "time_to_first_upstream_tx_byte": seconds(0.002),
        "time_to_last_upstream_tx_byte": seconds(0.003),
        "time_to_first_upstream_rx_byte": seconds(0.25),
        "time_to_last_upstream_rx_byte": seconds(1.4),
        "time_to_first_downstream_tx_byte": seconds(0.26),
        "time_to_last_downstream_tx_byte": seconds(1.5),
        "duration": seconds(1.6),
        "upstream_remote_address": address("10.0.0.1", 8000),
        "upstream_cluster": "chat",
        "route_name": "chat-default",
        "metadata": metadata(METADATA),
        "stream_id": "5b1f",
        "upstream_request_attempt_count": 1,
        "access_log_type": data.AccessLogType.DownstreamEnd,
    }
    return data.HttpAccessLogEntry(
        common_properties=data.AccessLogCommon(**(usual | common)),
        protocol_version=data.HttpAccessLogEntryHttpVersion.HTTP11,
        request=data.HttpRequestProperties(path="/v1/chat/completions", request_id="r-1"),
        response=data.HttpResponseProperties(
            response_code=status, response_headers=headers or {}, response_trailers=trailers or {}
        ),
    )


def encoded(*entries: data.HttpAccessLogEntry) -> bytes:
    return bytes(
        service.StreamAccessLogsMessage(
            identifier=service.StreamAccessLogsMessageIdentifier(node=core.Node(id="envoy-1"), log_name="llm"),
            http_logs=service.StreamAccessLogsMessageHttpAccessLogEntries(log_entry=list(entries)),
        )
    )


def sample(**changes: Any) -> AccessSample:
    """The one sample of one entry."""
    batch = codec.batch(encoded(entry(**changes)))
    assert (batch.running, batch.unreadable) == (0, 0)
    (one,) = batch.samples
    return one


def test_the_method_is_envoys() -> None:
    path = f"/{codec.METHOD_SERVICE}/{codec.METHOD_NAME}"
    assert path == "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs"
    assert bytes(service.StreamAccessLogsResponse()) == codec.RESPONSE


def test_all_of_a_request() -> None:
    assert sample() == AccessSample(
        upstream="10.0.0.1:8000",
        cluster="chat",
        route="chat-default",
        status=200,
        flags=(),
        first_byte_s=0.25,
        total_s=1.5,
        tier="strict",
        scenario="order_query",
        request_class="critical",
        tenant="acme",
        params="default@7",
        orca={},
    )


def test_nothing_but_a_duration() -> None:
    bare = data.HttpAccessLogEntry(common_properties=data.AccessLogCommon(duration=seconds(0.5)))
    (one,) = codec.batch(encoded(bare)).samples
    assert one == AccessSample(
        upstream="",
        cluster="",
        route="",
        status=0,
        flags=(),
        first_byte_s=None,
        total_s=0.5,
        tier="",
        scenario="",
        request_class="",
        tenant="",
        params="",
    )


def test_entries_keep_their_order() -> None:
    batch = codec.batch(encoded(*(entry(route_name=f"r{number}") for number in range(5))))
    assert [one.route for one in batch.samples] == ["r0", "r1", "r2", "r3", "r4"]


# --- times


@pytest.mark.parametrize(
    ("to_client", "duration", "expected"), [(1.5, 1.6, 1.5), (None, 1.6, 1.6), (0.0, 1.6, 0.0), (1.5, None, 1.5)]
)
def test_the_total_ends_with_the_last_byte_or_else_with_the_request(
    to_client: float | None, duration: float | None, expected: float
) -> None:
    times = {"time_to_last_downstream_tx_byte": to_client, "duration": duration}
    assert sample(**{k: None if v is None else seconds(v) for k, v in times.items()}).total_s == expected


def test_a_first_byte_that_did_not_come_is_not_zero() -> None:
    assert sample(time_to_first_upstream_rx_byte=None).first_byte_s is None
    assert sample(time_to_first_upstream_rx_byte=seconds(0)).first_byte_s == 0


@given(st.integers(0, 10**11))
def test_times_to_the_microsecond(microseconds: int) -> None:
    one = sample(time_to_first_upstream_rx_byte=dt.timedelta(microseconds=microseconds))
    assert one.first_byte_s == pytest.approx(microseconds / 1e6, abs=1e-9)


# --- who answered


@pytest.mark.parametrize(
    ("upstream", "expected"),
    [
        (address("10.0.0.1", 8000), "10.0.0.1:8000"),
        (address("::1", 8000), "[::1]:8000"),
        (core.Address(pipe=core.Pipe(path="/run/engine.sock")), "/run/engine.sock"),
        (None, ""),
    ],
)
def test_upstream(upstream: core.Address | None, expected: str) -> None:
    assert sample(upstream_remote_address=upstream).upstream == expected


@pytest.mark.parametrize(("cluster", "expected"), [("chat-grpc", "chat-grpc"), ("", "chat")])
def test_without_a_cluster_the_pool_it_was_to_be(cluster: str, expected: str) -> None:
    assert sample(upstream_cluster=cluster).cluster == expected


# --- status


@pytest.mark.parametrize("status", [200, 404, 503, 0, None])
def test_status(status: int | None) -> None:
    assert sample(status=status).status == (status or 0)


@pytest.mark.parametrize(
    ("status", "grpc", "expected"),
    [
        (200, "0", 200),
        (200, "3", 400),
        (200, "4", 504),
        (200, "8", 429),
        (200, "13", 500),
        (200, "14", 503),
        (200, "99", 200),
        (200, "", 200),
        (200, "x", 200),
        (503, "3", 503),
    ],
)
@pytest.mark.parametrize("place", ["headers", "trailers"])
def test_a_failed_grpc_call_is_no_200(place: str, status: int, grpc: str, expected: int) -> None:
    assert sample(status=status, **{place: {"grpc-status": grpc}}).status == expected


# --- flags

FLAGS = sorted(data.ResponseFlags.__dataclass_fields__)


@pytest.mark.parametrize("name", [name for name in FLAGS if not name.startswith("_")])
def test_every_flag_of_envoys_has_a_spelling(name: str) -> None:
    value: Any = data.ResponseFlagsUnauthorized() if name == "unauthorized_details" else True
    (flag,) = sample(response_flags=data.ResponseFlags(**{name: value})).flags
    assert flag.isupper()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("upstream_overflow", "UO"),
        ("upstream_connection_failure", "UF"),
        ("upstream_connection_termination", "UC"),
        ("no_healthy_upstream", "UH"),
        ("upstream_retry_limit_exceeded", "URX"),
        ("upstream_request_timeout", "UT"),
        ("downstream_connection_termination", "DC"),
        ("no_route_found", "NR"),
        ("no_cluster_found", "NC"),
        ("stream_idle_timeout", "SI"),
        ("duration_timeout", "DT"),
        ("rate_limited", "RL"),
        ("upstream_remote_reset", "UR"),
        ("upstream_protocol_error", "UPE"),
        ("downstream_remote_reset", "DR"),
    ],
)
def test_flags_as_envoys_text_log_spells_them(name: str, expected: str) -> None:
    assert sample(response_flags=data.ResponseFlags(**{name: True})).flags == (expected,)


def test_several_flags_and_none() -> None:
    both = data.ResponseFlags(upstream_connection_failure=True, upstream_retry_limit_exceeded=True)
    for _ in range(2):
        assert sample(response_flags=both).flags == ("UF", "URX")
        assert sample(response_flags=data.ResponseFlags()).flags == ()


def test_flags_of_a_later_envoy_are_left_out_and_not_remembered_without_bound() -> None:
    for number in range(codec.MAX_KNOWN_FLAGS + 10):
        # Field 4000, which nobody has.
        flags = b"\x40\x01" + b"\x82\xfa\x01\x02" + number.to_bytes(2, "big")
        common = pb.AccessLogCommon(response_flags=flags)
        common.duration.FromSeconds(1)
        logs = pb.StreamAccessLogsMessage.HTTPAccessLogEntries(
            log_entry=[pb.HTTPAccessLogEntry(common_properties=common)]
        )
        (one,) = codec.batch(pb.StreamAccessLogsMessage(http_logs=logs).SerializeToString()).samples
        assert one.flags == ("UO",)
    assert len(codec._KNOWN_FLAGS) <= codec.MAX_KNOWN_FLAGS


# --- what the decision said


def test_metadata_of_other_filters_and_other_kinds_is_left_out() -> None:
    assert sample(metadata=metadata({"tier": "strict"}, namespace="elsewhere")).tier == ""
    odd = sample(metadata=metadata({"tier": 1.5, "tenant": True, "scenario": "x"}))
    assert (odd.tier, odd.tenant, odd.scenario) == ("", "", "x")


def test_no_metadata() -> None:
    one = sample(metadata=None, upstream_cluster="")
    assert (one.tier, one.scenario, one.request_class, one.tenant, one.params, one.cluster) == ("",) * 6


def test_a_load_report_in_the_header_or_where_a_filter_put_it() -> None:
    load = 'JSON {"named_metrics": {"kv_cache_usage_perc": 0.25}}'
    assert sample(headers={"endpoint-load-metrics": load}).orca == {"kv_cache_usage_perc": 0.25}
    assert sample(metadata=metadata(METADATA | {"orca": load})).orca == {"kv_cache_usage_perc": 0.25}
    assert sample(headers={"endpoint-load-metrics": "nonsense"}).orca == {}


def test_a_header_that_is_no_utf_8_costs_neither_its_sample_nor_the_batch() -> None:
    message = encoded(entry(headers={"endpoint-load-metrics": "JSON xx"}), entry(route_name="next"))
    batch = codec.batch(message.replace(b"JSON xx", b"JSON \xff\xfe"))
    assert [(one.route, one.orca) for one in batch.samples] == [("chat-default", {}), ("next", {})]
    message = encoded(entry(metadata=metadata(METADATA | {"orca": "JSON xx"})))
    (one,) = codec.batch(message.replace(b"JSON xx", b"JSON \xff\xfe")).samples
    assert (one.tier, one.orca) == ("strict", {})


# --- what is no finished request, or nothing at all


@pytest.mark.parametrize(
    "kind", [kind for kind in data.AccessLogType if kind.name not in ("NotSet", "DownstreamEnd")]
)
def test_entries_of_requests_that_still_run_are_left_out(kind: data.AccessLogType) -> None:
    batch = codec.batch(encoded(entry(access_log_type=kind), entry()))
    assert (len(batch.samples), batch.running, batch.unreadable) == (1, 1, 0)


def test_an_intermediate_entry_of_an_older_envoy_is_left_out() -> None:
    older = entry(access_log_type=data.AccessLogType.NotSet, intermediate_log_entry=True)
    assert codec.batch(encoded(older)).running == 1
    assert len(codec.batch(encoded(entry(access_log_type=data.AccessLogType.NotSet))).samples) == 1


def test_an_entry_without_any_time_is_unreadable() -> None:
    batch = codec.batch(encoded(data.HttpAccessLogEntry(), entry()))
    assert (len(batch.samples), batch.unreadable) == (1, 1)


@pytest.mark.parametrize("part", ["response_flags", "metadata"])
def test_a_broken_part_costs_its_entry_alone(part: str) -> None:
    whole = pb.StreamAccessLogsMessage.FromString(encoded(entry(), entry(route_name="next")))
    broken = whole.http_logs.log_entry[0].common_properties
    if part == "metadata":
        broken.metadata.filter_metadata["llm"] = b"\xff"
    else:
        broken.response_flags = b"\xff"
    batch = codec.batch(whole.SerializeToString())
    assert ([one.route for one in batch.samples], batch.unreadable) == (["next"], 1)


def test_tcp_entries_and_empty_messages_are_nothing() -> None:
    tcp = service.StreamAccessLogsMessageTcpAccessLogEntries(log_entry=[data.TcpAccessLogEntry()])
    for message in (bytes(service.StreamAccessLogsMessage(tcp_logs=tcp)), b""):
        assert codec.batch(message) == codec.Batch([], 0, 0)


@given(st.binary(max_size=80))
def test_garbage_is_a_decode_error_or_nothing(message: bytes) -> None:
    with suppress(DecodeError):
        assert codec.batch(message).running >= 0


@given(st.integers(0, 700), st.integers(0, 255))
def test_one_wrong_byte_is_a_decode_error_or_another_sample(at: int, byte: int) -> None:
    message = bytearray(encoded(entry()))
    message[at % len(message)] = byte
    with suppress(DecodeError):
        batch = codec.batch(bytes(message))
        assert len(batch.samples) + batch.running + batch.unreadable <= 1


# --- the fields themselves

MESSAGES = [
    (pb.StreamAccessLogsMessage, service.StreamAccessLogsMessage),
    (pb.StreamAccessLogsMessage.HTTPAccessLogEntries, service.StreamAccessLogsMessageHttpAccessLogEntries),
    (pb.HTTPAccessLogEntry, data.HttpAccessLogEntry),
    (pb.AccessLogCommon, data.AccessLogCommon),
    (pb.HTTPResponseProperties, data.HttpResponseProperties),
    (pb.ResponseFlags, data.ResponseFlags),
    (pb.Metadata, core.Metadata),
    (pb.Address, core.Address),
    (pb.SocketAddress, core.SocketAddress),
    (pb.Pipe, core.Pipe),
    (pb.Strings, google.Struct),
    (pb.Text, google.Value),
]


@pytest.mark.parametrize(("ours", "envoys"), MESSAGES)
def test_every_field_has_envoys_number(ours: Any, envoys: type[betterproto2.Message]) -> None:
    numbers = {name: meta.number for name, meta in envoys._betterproto.meta_by_field_name.items()}
    for field in ours.DESCRIPTOR.fields:
        assert numbers[field.name] == field.number, field.full_name

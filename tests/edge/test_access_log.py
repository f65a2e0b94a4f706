"""The servicer, by itself and behind a real Envoy: what a request's sample says."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from extproc.codec import access_log as codec
from extproc.codec.wire import access_log_pb2 as pb
from extproc.edge import grpc_server
from extproc.edge.access_log import AccessLogServicer, handler
from extproc.model.telemetry import AccessSample
from extproc.windows.outcome import Outcome, outcome
from tests.ports import free_port
from tests.real_envoy import RealEnvoy, find_envoy, talk

PATH = f"/{codec.METHOD_SERVICE}/{codec.METHOD_NAME}"


class Notes:
    """What a servicer told, and the samples it handed over; waits for so many of them."""

    def __init__(self) -> None:
        self.samples: list[AccessSample] = []
        self.running = self.unreadable = self.messages = self.failed = 0
        self.opened = self.ended = 0
        self.problem: Exception | None = None

    def record(self, samples: list[AccessSample]) -> None:
        if self.problem is not None:
            raise self.problem
        self.samples += samples

    def entries_running(self, count: int) -> None:
        self.running += count

    def entries_unreadable(self, count: int) -> None:
        self.unreadable += count

    def message_unreadable(self) -> None:
        self.messages += 1

    def samples_failed(self) -> None:
        self.failed += 1

    def log_opened(self) -> None:
        self.opened += 1

    def log_ended(self) -> None:
        self.ended += 1

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.01)

    async def one(self) -> AccessSample:
        """The next sample, alone."""
        await self.until(lambda: bool(self.samples))
        (sample,) = self.samples
        self.samples.clear()
        return sample


def servicer(notes: Notes) -> AccessLogServicer:
    return AccessLogServicer(record=notes.record, recorder=notes)


def message(*clusters: str) -> bytes:
    whole = pb.StreamAccessLogsMessage()
    for cluster in clusters:
        entry = whole.http_logs.log_entry.add()
        entry.common_properties.upstream_cluster = cluster.encode()
        entry.common_properties.duration.FromMilliseconds(5)
    return whole.SerializeToString()


@asynccontextmanager
async def serving(notes: Notes, path: Path) -> AsyncIterator[str]:
    server = grpc_server.server(1 << 20)
    server.add_generic_rpc_handlers((handler(servicer(notes)),))
    address = grpc_server.bind(server, f"unix:{path / 'control.sock'}")
    await server.start()
    try:
        yield address
    finally:
        await server.stop(0)


def clusters(notes: Notes) -> list[str]:
    return [sample.cluster for sample in notes.samples]


def test_the_samples_of_a_message_are_handed_over_together() -> None:
    notes = Notes()
    servicer(notes).take(message("a", "b"))
    assert clusters(notes) == ["a", "b"]


@pytest.mark.parametrize("garbage", [b"\xff", b"\x12\x7f", b"GET / HTTP/1.1", b"\x12\x03\x0a\x01\xff"])
def test_garbage_is_counted_and_the_rest_goes_on(garbage: bytes) -> None:
    notes = Notes()
    one = servicer(notes)
    one.take(garbage)
    one.take(message("a"))
    assert notes.messages == 1
    assert clusters(notes) == ["a"]


def test_an_empty_message_is_nothing() -> None:
    notes = Notes()
    servicer(notes).take(b"")
    assert vars(notes) == vars(Notes())


def test_entries_that_are_no_sample_are_counted() -> None:
    whole = pb.StreamAccessLogsMessage.FromString(message("a", "b", "c"))
    whole.http_logs.log_entry[0].common_properties.intermediate_log_entry = True
    whole.http_logs.log_entry[1].common_properties.ClearField("duration")
    notes = Notes()
    servicer(notes).take(whole.SerializeToString())
    assert (notes.running, notes.unreadable, clusters(notes)) == (1, 1, ["c"])


def test_a_failure_to_record_is_told_without_what_it_says(caplog: pytest.LogCaptureFixture) -> None:
    notes = Notes()
    notes.problem = ValueError("a secret")
    servicer(notes).take(message("a"))
    assert notes.failed == 1
    (record,) = [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert "ValueError" in record.getMessage()
    assert "secret" not in caplog.text


async def test_many_envoys_at_once(tmp_path: Path) -> None:
    notes = Notes()
    async with serving(notes, tmp_path) as address, grpc.aio.insecure_channel(address) as channel:
        calls = [channel.stream_unary(PATH)() for _ in range(8)]
        for number, call in enumerate(calls):
            await call.write(message(f"envoy-{number}"))
        await notes.until(lambda: len(notes.samples) == 8)
        assert (notes.opened, notes.ended) == (8, 0)
        await calls[0].done_writing()
        assert await calls[0] == codec.RESPONSE
        for call in calls[1:]:
            call.cancel()
        await notes.until(lambda: notes.ended == 8)
    assert sorted(clusters(notes)) == [f"envoy-{number}" for number in range(8)]


async def test_a_stream_outlives_garbage(tmp_path: Path) -> None:
    notes = Notes()
    async with serving(notes, tmp_path) as address, grpc.aio.insecure_channel(address) as channel:
        call = channel.stream_unary(PATH)()
        for sent in (b"\xff", message("a"), b"\xff", message("b")):
            await call.write(sent)
        await notes.until(lambda: len(notes.samples) == 2)
        call.cancel()
    assert notes.messages == 2


# --- behind a real Envoy

FIRST_BYTE_S, REST_S = 0.15, 0.1
TIMEOUT_S = 1.0

METADATA = {
    "tier": "strict",
    "scenario": "order_query",
    "class": "critical",
    "tenant": "acme",
    "params": "default@7",
    "pool": "chat",
}

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
LOAD = b'JSON {"cpu_utilization": 0.5, "named_metrics": {"kv_cache_usage_perc": 0.25}}'
ANSWERS = {
    "ok": OK,
    "bad": b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n",
    "broken": b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n",
    "load": OK.replace(b"\r\n\r\n", b"\r\nendpoint-load-metrics: %s\r\n\r\n" % LOAD),
    "load-text": OK.replace(b"\r\n\r\n", b"\r\nendpoint-load-metrics: TEXT named_metrics.kv=0.5\r\n\r\n"),
    "load-odd": OK.replace(b"\r\n\r\n", b"\r\nendpoint-load-metrics: JSON \xff\xfe\r\n\r\n"),
    "cut": b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}",
    "nothing": b"",
}


async def engine(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers by the last part of the path and closes; `slow` in two parts, `silent` never."""
    asked = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode().rpartition("/")[2]
    if asked == "silent":
        await reader.read()
    elif asked == "slow":
        await asyncio.sleep(FIRST_BYTE_S)
        writer.write(OK[:-1])
        await writer.drain()
        await asyncio.sleep(REST_S)
        writer.write(OK[-1:])
    else:
        writer.write(ANSWERS[asked])
    writer.close()


def cluster(name: str, address: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    endpoints = [] if address is None else [{"lb_endpoints": [{"endpoint": {"address": address}}]}]
    assignment = {"cluster_name": name, "endpoints": endpoints}
    return {"name": name, "type": "STATIC", "connect_timeout": "1s", "load_assignment": assignment, **more}


def tcp(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def route(name: str, **more: Any) -> dict[str, Any]:
    action = {"cluster": name, "timeout": f"{TIMEOUT_S}s", **more}
    return {"name": f"to-{name}", "match": {"prefix": f"/{name}/"}, "route": action}


def typed(name: str, **more: Any) -> dict[str, Any]:
    kind = f"type.googleapis.com/envoy.extensions.{name}"
    return {"name": name, "typed_config": {"@type": kind, **more}}


def configuration(port: int, admin_port: int, clusters: list[dict[str, Any]], control: str) -> dict[str, Any]:
    """Nothing but a listener with one route per cluster, metadata like a decision's, and the log to `control`.

    The last route hides load reports from the client.
    """
    common = {
        "log_name": "llm",
        "transport_api_version": "V3",
        "grpc_service": {"envoy_grpc": {"cluster_name": "control"}},
        "buffer_flush_interval": "0.05s",
    }
    access_log = typed(
        "access_loggers.grpc.v3.HttpGrpcAccessLogConfig",
        common_config=common,
        additional_response_headers_to_log=["endpoint-load-metrics", "grpc-status"],
        additional_response_trailers_to_log=["grpc-status"],
    )
    taken = {"metadata_namespace": "llm", "key": codec.ORCA_KEY, "type": "STRING"}
    rule = {"header": "endpoint-load-metrics", "on_header_present": taken, "remove": True}
    decision = {"metadata_namespace": "llm", "value": METADATA}
    routes = [route(one["name"]) for one in clusters]
    hidden = typed("filters.http.header_to_metadata.v3.Config", response_rules=[rule])
    hidden["disabled"] = True
    routes[-1]["typed_per_filter_config"] = {hidden["name"]: {"@type": FILTER_CONFIG, "config": {}}}
    connection_manager = typed(
        "filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix="in",
        access_log=[access_log],
        route_config={"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
        http_filters=[
            hidden,
            typed("filters.http.set_metadata.v3.Config", metadata=[decision]),
            typed("filters.http.router.v3.Router"),
        ],
    )
    http2 = typed("upstreams.http.v3.HttpProtocolOptions", explicit_http_config={"http2_protocol_options": {}})
    options = {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2["typed_config"]}
    control_cluster = cluster("control", {"pipe": {"path": control}}, typed_extension_protocol_options=options)
    listener = {"name": "in", "address": tcp(port), "filter_chains": [{"filters": [connection_manager]}]}
    resources = {"listeners": [listener], "clusters": [*clusters, control_cluster]}
    return {"admin": {"address": tcp(admin_port)}, "static_resources": resources}


class SmallEnvoy(RealEnvoy):
    """With a configuration of its own instead of the shipped one."""

    def __init__(self, clusters: list[dict[str, Any]], folder: Path) -> None:
        self.folder = folder / "envoy"
        self.folder.mkdir()
        self.port, self.admin_port = free_port(), free_port()
        config = configuration(self.port, self.admin_port, clusters, str(folder / "control.sock"))
        written = self.folder / "envoy.json"
        written.write_text(json.dumps(config))
        self._log = (self.folder / "envoy.log").open("wb")
        command = [str(find_envoy()), "-c", str(written), "--use-dynamic-base-id", "-l", "warning"]
        command += ["--concurrency", "1"]
        self.process = subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT)
        try:
            self.await_ready()
        except BaseException:
            self.stop()
            raise


FILTER_CONFIG = "type.googleapis.com/envoy.config.route.v3.FilterConfig"


class World:
    """An Envoy in front of an engine, and what its log said."""

    def __init__(self, notes: Notes, envoy: RealEnvoy, engine_port: int, closed_port: int) -> None:
        self.notes = notes
        self.envoy = envoy
        self.engine = f"127.0.0.1:{engine_port}"
        self.closed = f"127.0.0.1:{closed_port}"

    async def ask(self, path: str, *headers: str) -> tuple[bytes, AccessSample]:
        """The answer's bytes and the request's sample."""
        head = "".join(f"{line}\r\n" for line in (f"GET {path} HTTP/1.1", "host: x", *headers))
        answer = await asyncio.to_thread(talk, self.envoy.port, f"{head}\r\n".encode())
        return answer, await self.notes.one()


@asynccontextmanager
async def running(folder: Path, notes: Notes) -> AsyncIterator[World]:
    closed_port, engine_port = free_port(), free_port()
    clusters = [
        cluster("chat", tcp(engine_port)),
        cluster("refused", tcp(closed_port)),
        cluster("full", tcp(engine_port), circuit_breakers={"thresholds": [{"max_requests": 0}]}),
        cluster("nobody", None),
        cluster("hiding", tcp(engine_port)),
    ]

    server = await asyncio.start_server(engine, "127.0.0.1", engine_port)
    envoy = await asyncio.to_thread(SmallEnvoy, clusters, folder)
    try:
        yield World(notes, envoy, engine_port, closed_port)
    finally:
        await asyncio.to_thread(envoy.stop)
        server.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    folder, notes = tmp_path_factory.mktemp("log"), Notes()
    async with serving(notes, folder), running(folder, notes) as world:
        yield world


def with_envoy(test: Any) -> Any:
    return pytest.mark.envoy(pytest.mark.asyncio(loop_scope="module")(test))


@with_envoy
async def test_endpoint_route_times_and_the_decision(world: World) -> None:
    _, sample = await world.ask("/chat/slow")
    assert (sample.upstream, sample.cluster, sample.route) == (world.engine, "chat", "to-chat")
    assert (sample.status, sample.flags) == (200, ())
    assert sample.first_byte_s is not None
    assert FIRST_BYTE_S <= sample.first_byte_s <= sample.total_s - REST_S * 0.9
    assert (sample.tier, sample.scenario, sample.request_class) == ("strict", "order_query", "critical")
    assert (sample.tenant, sample.params) == ("acme", "default@7")
    assert outcome(sample) is Outcome.OK


@with_envoy
@pytest.mark.parametrize(
    ("path", "status", "flags", "ended"),
    [
        ("/chat/ok", 200, (), Outcome.OK),
        ("/chat/bad", 400, (), Outcome.CLIENT_ERROR),
        ("/chat/broken", 500, (), Outcome.ERROR),
        ("/chat/nothing", 503, ("UC",), Outcome.ERROR),
        ("/chat/silent", 504, ("UT",), Outcome.ERROR),
        ("/chat/cut", 200, ("UPE",), Outcome.ERROR),
        ("/full/ok", 503, ("UO",), Outcome.OVERFLOW),
    ],
)
async def test_how_a_request_ended(
    world: World, path: str, status: int, flags: tuple[str, ...], ended: Outcome
) -> None:
    _, sample = await world.ask(path)
    assert (sample.upstream, sample.status, sample.flags) == (world.engine, status, flags)
    assert outcome(sample) is ended


@with_envoy
@pytest.mark.parametrize("headers", [(), ("content-type: application/grpc",)])
async def test_a_refused_connection_names_who_refused_it(world: World, headers: tuple[str, ...]) -> None:
    _, sample = await world.ask("/refused/ok", *headers)
    assert (sample.upstream, sample.cluster, sample.route) == (world.closed, "refused", "to-refused")
    assert (sample.status, sample.flags, sample.first_byte_s) == (503, ("UF",), None)
    assert outcome(sample) is Outcome.ERROR


@with_envoy
async def test_an_overflow_of_a_grpc_call(world: World) -> None:
    answer, sample = await world.ask("/full/ok", "content-type: application/grpc")
    assert answer.startswith(b"HTTP/1.1 200")
    assert (sample.status, sample.flags, outcome(sample)) == (503, ("UO",), Outcome.OVERFLOW)


@with_envoy
async def test_a_pool_with_no_endpoint(world: World) -> None:
    _, sample = await world.ask("/nobody/ok")
    assert (sample.upstream, sample.status, sample.flags) == ("", 503, ("UH",))
    assert outcome(sample) is Outcome.ERROR


@with_envoy
async def test_no_route_is_nobodys_fault(world: World) -> None:
    _, sample = await world.ask("/elsewhere")
    assert (sample.upstream, sample.route, sample.status, sample.flags) == ("", "", 404, ("NR",))
    assert outcome(sample) is Outcome.LOCAL


@with_envoy
async def test_a_client_that_leaves(world: World) -> None:
    def leave() -> None:
        with socket.create_connection(("127.0.0.1", world.envoy.port)) as connection:
            connection.sendall(b"GET /chat/silent HTTP/1.1\r\nhost: x\r\n\r\n")
            connection.settimeout(TIMEOUT_S / 5)
            with pytest.raises(TimeoutError):
                connection.recv(1)

    await asyncio.to_thread(leave)
    sample = await world.notes.one()
    assert (sample.upstream, sample.status, sample.flags) == (world.engine, 0, ("DC",))
    assert outcome(sample) is Outcome.CANCELLED


@with_envoy
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("load", {"cpu_utilization": 0.5, "kv_cache_usage_perc": 0.25}),
        ("load-text", {"kv": 0.5}),
        ("load-odd", {}),
        ("ok", {}),
    ],
)
@pytest.mark.parametrize("route", ["chat", "hiding"])
async def test_a_load_report_is_read_and_can_be_hidden(
    world: World, route: str, path: str, expected: dict[str, float]
) -> None:
    answer, sample = await world.ask(f"/{route}/{path}")
    assert sample.orca == expected
    assert (sample.tier, sample.status) == ("strict", 200)
    assert (b"endpoint-load-metrics" in answer) == (route == "chat" and path != "ok")


@pytest.mark.envoy
async def test_an_envoy_that_was_there_first_and_a_servicer_that_comes_back(tmp_path: Path) -> None:
    notes = Notes()
    async with running(tmp_path, notes) as world:
        for _ in range(2):
            async with serving(notes, tmp_path):
                # What ended while nobody listened is lost; what ends once the log is connected again is not.
                async with asyncio.timeout(20):
                    while not notes.samples:
                        await asyncio.to_thread(talk, world.envoy.port, b"GET /chat/ok HTTP/1.1\r\nhost: x\r\n\r\n")
                        await asyncio.sleep(0.1)
                assert {sample.upstream for sample in notes.samples} == {world.engine}
            notes.samples.clear()
    assert notes.opened == notes.ended >= 2

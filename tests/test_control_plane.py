"""The control side as a whole, on real sockets: engines that are scraped, Envoys that follow, and what is left after it."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from aiohttp import web
from google.protobuf.any_pb2 import Any as Packed
from prometheus_client import CollectorRegistry

from extproc import control_plane as module
from extproc.codec import access_log, discovery
from extproc.codec.wire import access_log_pb2, discovery_pb2
from extproc.control_plane import ControlPlane
from extproc.edge import grpc_server
from extproc.edge.control_metrics import ControlMetrics
from extproc.edge.traffic_metrics import TrafficMetrics
from extproc.engines.failures import Cause
from extproc.loops.reconcile import PoolReport
from extproc.model.topology import Endpoint
from extproc.model.xds import Kind
from extproc.scoring.values import EndpointWeight, WeightReason
from extproc.settings import Settings, load
from tests.ports import free_port
from tests.protect.protectors import quiet_protector

FAST = {
    "telemetry": {"interval_s": 0.2, "timeout_s": 0.2},
    "health": {"interval_s": 0.1, "timeout_s": 0.1},
}


class Engine:
    """A vLLM of one page, which counts who asks."""

    def __init__(self) -> None:
        self.port = free_port()
        self.kv_usage = 0.5
        self.healthy = True
        self.asked: Counter[str] = Counter()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def key(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def metrics(self, _: web.Request) -> web.Response:
        self.asked["metrics"] += 1
        text = f"# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc {self.kv_usage}\n"
        return web.Response(text=f"{text}# TYPE n gauge\nn {self.asked['metrics']}\n")

    async def health(self, _: web.Request) -> web.Response:
        self.asked["health"] += 1
        return web.Response(status=200 if self.healthy else 503)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Engine]:
        app = web.Application()
        app.router.add_get("/metrics", self.metrics)
        app.router.add_get("/health", self.health)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.port).start()
        try:
            yield self
        finally:
            await runner.cleanup()


def pool(name: str, *engines: Engine, **more: Any) -> dict[str, Any]:
    return {"name": name, "engine": "vllm", "endpoints": [each.url for each in engines], **more}


def config(*pools: dict[str, Any], **more: Any) -> Settings:
    return load(yaml.safe_dump({"pools": list(pools)} | FAST | more))


class World:
    """A control plane on a server, and the Envoys' end of it."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.registry = CollectorRegistry()
        self.folder = folder
        self.control = ControlPlane(
            settings,
            folder,
            metrics=ControlMetrics(self.registry),
            traffic=lambda pool_of: TrafficMetrics(self.registry, pool_of=pool_of),
            protection=lambda pool_of, load_of: quiet_protector(pool_of, load_of, folder),
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[World]:
        await self.control.start()
        server = grpc_server.server(1 << 20)
        self.control.add_to(server)
        address = grpc_server.bind(server, f"unix:{self.folder / 'control.sock'}")
        await server.start()
        try:
            async with grpc.aio.insecure_channel(address) as channel:
                self.channel = channel
                yield self
        finally:
            self.control.drain()
            await server.stop(0)
            await self.control.close()

    def envoy(self, node: str = "n", cluster: str = "c") -> Envoy:
        return Envoy(self.channel, node, cluster)

    def value(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0

    def pool(self, name: str = "chat") -> PoolReport:
        assert self.control.report is not None
        return next(each for each in self.control.report.pools if each.name == name)

    def weights(self, name: str = "chat") -> dict[str, EndpointWeight]:
        return {each.key: each for each in self.pool(name).weights.weights}

    async def until(self, found: Callable[[], object]) -> None:
        async with asyncio.timeout(20):
            while not found():
                await asyncio.sleep(0.01)

    async def log(self, engine: Engine, count: int, seconds: float, cluster: str = "chat") -> None:
        """One message of Envoy's access log."""
        whole = access_log_pb2.StreamAccessLogsMessage()
        for _ in range(count):
            entry = whole.http_logs.log_entry.add()
            entry.common_properties.upstream_cluster = cluster.encode()
            place = entry.common_properties.upstream_remote_address.socket_address
            place.address, place.port_value = b"127.0.0.1", engine.port
            entry.common_properties.duration.FromMilliseconds(int(seconds * 1000))
            entry.response.response_code.value = 200
        call = self.channel.stream_unary(f"/{access_log.METHOD_SERVICE}/{access_log.METHOD_NAME}")()
        await call.write(whole.SerializeToString())
        await call.done_writing()
        await call


class Envoy:
    """One stream of discovery, whose client acknowledges all it gets."""

    def __init__(self, channel: grpc.aio.Channel, node: str, cluster: str) -> None:
        self.call: Any = channel.stream_stream(f"/{discovery.METHOD_SERVICE}/{discovery.METHOD_NAME}")()
        self._node = (node, cluster)

    async def ask(self, kind: Kind, *names: str, answering: discovery_pb2.DiscoveryResponse | None = None) -> None:
        request = discovery_pb2.DiscoveryRequest(type_url=kind, resource_names=names)
        request.node.id, request.node.cluster = self._node
        if answering is not None:
            request.response_nonce, request.version_info = answering.nonce, answering.version_info
        await self.call.write(request.SerializeToString())

    async def answer(self) -> discovery_pb2.DiscoveryResponse:
        return discovery_pb2.DiscoveryResponse.FromString(await asyncio.wait_for(self.call.read(), 10))

    async def clusters(self) -> set[str]:
        """The next push of clusters."""
        await self.ask(Kind.CDS)
        found = await self.answer()
        await self.ask(Kind.CDS, answering=found)
        return {name_of(each) for each in found.resources}

    async def weights(self, name: str) -> list[int]:
        """The next push of an assignment, 0 for a draining endpoint."""
        found = await self.answer()
        await self.ask(Kind.EDS, name, answering=found)
        return assigned(found, name)


def name_of(resource: Packed) -> str:
    """Of a cluster: its first field."""
    value = resource.value
    return value[2 : 2 + value[1]].decode()


def assigned(response: discovery_pb2.DiscoveryResponse, name: str) -> list[int]:
    """0 for one that drains."""
    for resource in response.resources:
        found = discovery_pb2.ClusterLoadAssignment.FromString(resource.value)
        if found.cluster_name == name:
            every = [each for group in found.endpoints for each in group.lb_endpoints]
            return [0 if each.health_status == 3 else each.load_balancing_weight.value for each in every]
    raise AssertionError(f"no assignment of {name}")


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with Engine().serving() as one:
        yield one


@pytest.fixture
async def other() -> AsyncIterator[Engine]:
    async with Engine().serving() as one:
        yield one


# --- what Envoys are told


async def test_an_envoy_is_told_clusters_and_weights_and_hears_of_changes(
    tmp_path: Path, engine: Engine, other: Engine
) -> None:
    async with World(config(pool("chat", engine, other)), tmp_path).running() as world:
        envoy = world.envoy()
        assert await envoy.clusters() == {"chat"}
        await envoy.ask(Kind.EDS, "chat")
        assert await envoy.weights("chat") == [500, 500]
        engine.kv_usage, other.kv_usage = 0.9, 0.1
        weights = await envoy.weights("chat")
        while weights != [100, 900]:
            assert sum(weights) == 1000
            weights = await envoy.weights("chat")
        envoy.call.cancel()
    assert world.value("llm_xds_acks_total", type="eds") >= 2
    assert world.value("llm_sample_to_push_seconds_count", pool="chat") >= 1


async def test_weights_are_there_before_the_first_envoy_asks(tmp_path: Path, engine: Engine) -> None:
    world = World(config(pool("chat", engine)), tmp_path)
    await world.control.start()
    try:
        assert world.control.board.current.generation == 1
        assert world.pool().weights.total == 1000
        assert (tmp_path / "xds" / "cds.json").is_file()
    finally:
        await world.control.close()


async def test_an_engine_that_fails_its_checks_drains_and_comes_back(
    tmp_path: Path, engine: Engine, other: Engine
) -> None:
    settings = config(pool("chat", engine, other), telemetry={"interval_s": 60, "timeout_s": 0.2})
    async with World(settings, tmp_path).running() as world:
        envoy = world.envoy()
        await envoy.ask(Kind.EDS, "chat")
        assert await envoy.weights("chat") == [500, 500]
        engine.healthy = False
        assert await envoy.weights("chat") == [0, 1000], "long before the next interval"
        engine.healthy = True
        assert await envoy.weights("chat") == [500, 500]
        envoy.call.cancel()


async def test_the_access_log_makes_the_latency_term(tmp_path: Path, engine: Engine, other: Engine) -> None:
    async with World(config(pool("chat", engine, other)), tmp_path).running() as world:
        await world.log(engine, 19, 1.5)
        await world.log(other, 30, 0.1)
        await world.until(lambda: latency(world, other) is not None)
        assert latency(world, engine) is None
        await world.log(engine, 1, 1.5)
        await world.until(lambda: latency(world, engine) is not None)
        assert latency(world, engine) == pytest.approx(1.5, rel=0.02)
        await world.until(lambda: world.weights()[other.key].weight > 550)
        assert world.value("llm_request_duration_seconds_count", pool="chat", tier="none", status="2xx") == 50


def latency(world: World, engine: Engine) -> float | None:
    return next(each.reading for each in world.weights()[engine.key].terms if each.term.value == "latency")


async def test_no_engine_answers_and_traffic_goes_on(tmp_path: Path) -> None:
    dead, gone = Engine(), Engine()
    settings = config(pool("chat", dead, gone), health={"interval_s": 3600, "timeout_s": 0.1})
    async with World(settings, tmp_path).running() as world:
        await world.until(lambda: world.value("llm_scrape_failures_total", source="vllm", cause="refused") >= 4)
        assert [each.weight for each in world.weights().values()] == [500, 500]
        assert {each.reason for each in world.weights().values()} <= {WeightReason.EQUAL, WeightReason.LAST_GOOD}
        assert world.control.board.current.generation == 1


# --- views


EDGE = {"node_id": "*", "node_cluster": "edge", "pools": ["chat"]}
INNER = {"node_id": "*", "node_cluster": "inner", "pools": ["long"]}


async def test_each_envoy_is_told_of_its_view(tmp_path: Path, engine: Engine) -> None:
    settings = config(pool("chat", engine), pool("long", engine), xds={"views": [EDGE, INNER]})
    async with World(settings, tmp_path).running() as world:
        for cluster, expected in (("edge", {"chat"}), ("inner", {"long"})):
            envoy = world.envoy(cluster=cluster)
            assert await envoy.clusters() == expected
            envoy.call.cancel()
        stranger = world.envoy(cluster="elsewhere")
        await stranger.ask(Kind.CDS)
        assert await stranger.call.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_views_that_change_never_show_one_envoy_what_is_anothers(tmp_path: Path, engine: Engine) -> None:
    pools = (pool("chat", engine), pool("long", engine))
    async with World(config(*pools, xds={"views": [EDGE, INNER]}), tmp_path).running() as world:
        view = world.control._view
        await world.control.configure(config(*pools, xds={"views": [INNER, EDGE]}))
        assert set(told(view("", "edge"))) == {"chat"}
        world.control._reconciler.world = module.World(world.control.settings, ())  # one that was not published
        assert set(told(view("", "inner"))) == {"long"}


def told(encoded: Any) -> set[str]:
    assert encoded is not None
    return set(encoded.of(Kind.CDS).by_name)


# --- pools that come and go


async def test_pools_come_and_go_and_what_left_is_left_alone(tmp_path: Path, engine: Engine, other: Engine) -> None:
    async with World(config(pool("chat", engine)), tmp_path).running() as world:
        envoy = world.envoy()
        assert await envoy.clusters() == {"chat"}
        await world.control.configure(config(pool("chat", engine), pool("long", other)))
        found = await envoy.answer()
        await envoy.ask(Kind.CDS, answering=found)
        assert {name_of(each) for each in found.resources} == {"chat", "long"}
        await world.until(lambda: other.asked["metrics"] > 1 and other.asked["health"] > 1)
        await world.control.configure(config(pool("long", other)))
        assert {name_of(each) for each in (await envoy.answer()).resources} == {"long"}
        await asyncio.sleep(0.05)
        asked = dict(engine.asked)
        before = other.asked["metrics"]
        await world.until(lambda: other.asked["metrics"] > before + 3)
        assert dict(engine.asked) == asked
        envoy.call.cancel()


async def test_endpoints_of_a_file_come_and_go(tmp_path: Path, engine: Engine, other: Engine) -> None:
    file = tmp_path / "chat.yaml"
    file.write_text(yaml.safe_dump({"endpoints": [engine.url, other.url]}))
    settings = config({"name": "chat", "engine": "vllm", "endpoints_file": str(file)})
    async with World(settings, tmp_path).running() as world:
        assert set(world.weights()) == {engine.key, other.key}
        file.write_text("endpoints: [")
        await world.until(lambda: world.value("llm_endpoint_source_failures_total") >= 1)
        assert set(world.weights()) == {engine.key, other.key}
        file.write_text(yaml.safe_dump({"endpoints": [other.url]}))
        await world.until(lambda: set(world.weights()) == {other.key})


async def test_names_are_looked_up_for_real(tmp_path: Path, engine: Engine) -> None:
    dns = {"host": "localhost", "http_port": engine.port}
    async with World(config({"name": "chat", "engine": "vllm", "endpoints_dns": dns}), tmp_path).running() as world:
        assert set(world.weights()) == {engine.key}
        await world.until(lambda: engine.asked["metrics"] > 0)


async def test_a_name_nobody_knows_is_an_empty_pool_and_nothing_worse(tmp_path: Path, engine: Engine) -> None:
    unknown = {"name": "dark", "engine": "vllm", "endpoints_dns": {"host": "no-such-host.invalid", "http_port": 1}}
    async with World(config(pool("chat", engine), unknown), tmp_path).running() as world:
        envoy = world.envoy()
        assert await envoy.clusters() == {"chat", "dark"}
        await envoy.ask(Kind.EDS, "chat", "dark")
        assert assigned(found := await envoy.answer(), "dark") == []
        assert assigned(found, "chat") == [1000]
        envoy.call.cancel()


async def test_without_pools_envoys_wait_until_there_are_some(tmp_path: Path, engine: Engine) -> None:
    async with World(config(), tmp_path).running() as world:
        envoy = world.envoy()
        await envoy.ask(Kind.CDS)
        await asyncio.sleep(0.3)
        assert world.control.board.current.generation == 0
        assert world.value("llm_snapshots_refused_total") == 0
        assert world.value("llm_ticks_failed_total") == 0
        await world.control.configure(config(pool("chat", engine)))
        assert {name_of(each) for each in (await envoy.answer()).resources} == {"chat"}
        await world.control.configure(config())
        assert world.control.board.current.generation == 1, "Envoy keeps what it had"
        envoy.call.cancel()


async def test_without_xds_the_access_log_is_served_all_the_same(tmp_path: Path, engine: Engine) -> None:
    settings = config(pool("chat", engine), xds={"enabled": False})
    async with World(settings, tmp_path).running() as world:
        envoy = world.envoy()
        await envoy.ask(Kind.CDS)
        assert await envoy.call.code() is grpc.StatusCode.UNIMPLEMENTED
        await world.log(engine, 25, 0.2)
        await world.until(lambda: latency(world, engine) is not None)


# --- a config that changes the pace


async def test_a_faster_pace_is_followed_and_what_is_known_stays(tmp_path: Path, engine: Engine) -> None:
    slow = config(
        pool("chat", engine),
        telemetry={"interval_s": 1.5, "timeout_s": 0.2},
        health={"interval_s": 3600, "timeout_s": 0.1},
    )
    async with World(slow, tmp_path).running() as world:
        await world.until(lambda: engine.asked["metrics"] == 1)
        await world.control.configure(config(pool("chat", engine)))
        assert world.weights()[engine.key].terms[0].reading == 0.5
        await world.until(lambda: engine.asked["metrics"] >= 6)


async def test_another_window_starts_latencies_anew(tmp_path: Path, engine: Engine) -> None:
    async with World(config(pool("chat", engine)), tmp_path).running() as world:
        await world.log(engine, 25, 0.2)
        await world.until(lambda: latency(world, engine) is not None)
        await world.control.configure(config(pool("chat", engine), weights={"window_s": 30}))
        assert latency(world, engine) is None
        await world.log(engine, 25, 0.4)
        await world.until(lambda: latency(world, engine) is not None)
        assert latency(world, engine) == pytest.approx(0.4, rel=0.02)


async def test_tritons_statistics_may_be_asked_for_later(tmp_path: Path) -> None:
    port = free_port()
    endpoint = {"address": "127.0.0.1", "http_port": port, "grpc_port": free_port()}
    triton = {"name": "t", "engine": "triton", "endpoints": [endpoint]}
    async with World(config(triton), tmp_path).running() as world:
        telemetry = FAST["telemetry"] | {"triton_statistics": True}
        await world.control.configure(config(triton, telemetry=telemetry))
        key = f"t/127.0.0.1:{port}/statistics"
        await world.until(lambda: world.control._scraper.look(key).failure)
        failure = world.control._scraper.look(key).failure
        assert failure is not None
        assert failure.cause in (Cause.REFUSED, Cause.TIMEOUT)


# --- what goes wrong, and what is left


async def test_a_bug_in_a_tick_costs_that_tick(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with World(config(pool("chat", engine)), tmp_path).running() as world:
        with monkeypatch.context() as broken:
            broken.setattr(world.control._readings, "_input", lambda *_: 1 / 0)
            await world.until(lambda: world.value("llm_ticks_failed_total") >= 2)
        assert "a bug" in caplog.text
        at = world.control.report
        await world.until(lambda: world.control.report is not at)


@pytest.mark.parametrize(("times", "ticks"), [(0, True), (1e9, False)])
async def test_a_change_is_published_early_unless_ticks_would_fill_the_loop(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch, times: float, ticks: bool
) -> None:
    settings = config(pool("chat", engine), telemetry={"interval_s": 60, "timeout_s": 1})
    async with World(settings, tmp_path).running() as world:
        await world.until(lambda: world.value("llm_tick_duration_seconds_count") >= 2)
        monkeypatch.setattr(module, "EARLY_TICKS", times)
        before = world.value("llm_tick_duration_seconds_count")
        world.control._early.set()
        if ticks:
            await world.until(lambda: world.value("llm_tick_duration_seconds_count") > before)
        else:
            await asyncio.sleep(6 * module.EARLY_S)
            assert world.value("llm_tick_duration_seconds_count") == before


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_nothing_is_left_after_close(tmp_path: Path, engine: Engine, other: Engine) -> None:
    triton = {"address": "127.0.0.1", "http_port": other.port, "grpc_port": free_port()}
    settings = config(
        pool("chat", engine, other),
        {"name": "t", "engine": "triton", "endpoints": [triton]},
        {"name": "d", "engine": "vllm", "endpoints_dns": {"host": "localhost", "http_port": engine.port}},
        telemetry=FAST["telemetry"] | {"triton_statistics": True},
    )

    async def once() -> None:
        asked = other.asked["metrics"]
        world = World(settings, tmp_path)
        await world.control.start()
        await world.until(lambda: other.asked["metrics"] > asked + 1)
        await world.control.configure(config(pool("chat", engine)))
        await world.control.close()

    await once()  # what gRPC keeps for the life of a process is opened here
    await asyncio.sleep(0.5)
    tasks, files = asyncio.all_tasks(), open_files()
    for _ in range(4):
        await once()
    async with asyncio.timeout(10):  # the engines' ends of the connections take a moment
        while asyncio.all_tasks() != tasks or open_files() > files + 2:
            await asyncio.sleep(0.05)


async def test_a_start_that_fails_leaves_nothing(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks, files = asyncio.all_tasks(), open_files()
    monkeypatch.setattr(module, "fixed", lambda *_: 1 / 0)
    world = World(config(pool("chat", engine)), tmp_path)
    with pytest.raises(ZeroDivisionError):
        await world.control.start()
    assert world.control._pages._session.closed
    assert asyncio.all_tasks() == tasks
    assert open_files() <= files


async def test_draining_ends_every_stream(tmp_path: Path, engine: Engine) -> None:
    async with World(config(pool("chat", engine)), tmp_path).running() as world:
        envoy = world.envoy()
        assert await envoy.clusters() == {"chat"}
        world.control.drain()
        async with asyncio.timeout(5):
            while await envoy.call.read() is not grpc.aio.EOF:  # type: ignore[attr-defined]
                pass


# --- files and names


def test_a_file_is_read_within_bounds(tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(b"x" * (3 << 20))
    assert len(module._read(str(big))) == (1 << 20) + 1
    os.mkfifo(tmp_path / "fifo")
    for name in ("fifo", "."):
        with pytest.raises(OSError, match="is no file"):
            module._read(str(tmp_path / name))
    with pytest.raises(FileNotFoundError):
        module._read(str(tmp_path / "missing"))


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        (Endpoint("10.0.0.1", 8000), ("10.0.0.1:8000",)),
        (Endpoint("10.0.0.1", 8000, 8001), ("10.0.0.1:8000", "10.0.0.1:8001")),
        (Endpoint("fd00::1", 8000), ("[fd00::1]:8000",)),
    ],
)
def test_addresses_as_envoys_log_has_them(endpoint: Endpoint, expected: tuple[str, ...]) -> None:
    assert module._addresses(endpoint) == expected

"""An Envoy that follows a control plane of the test's own, engines that count, and clients that never stop asking."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import yaml

from extproc.cli.envoy_binary import find_envoy
from extproc.codec.xds import encode
from extproc.edge import grpc_server
from extproc.edge.xds import AdsServicer, handler
from extproc.loops.board import Board
from extproc.model.xds import NOTHING, Encoded, Kind, Resources
from tests.ports import free_port

Tree = dict[str, Any]
HTTP = "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
ADS = {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "2s"}


async def until(found: Callable[[], Any], *, within_s: float = 10.0, what: str = "") -> Any:
    """The first truthy result."""
    deadline = time.monotonic() + within_s
    while not (result := found()):
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}, last: {result!r}"
        await asyncio.sleep(0.005)
    return result


# ── resources ────────────────────────────────────────────────────────────────────────────────────


def cluster(name: str, **more: Any) -> Tree:
    config = {
        "eds_cluster_config": {"eds_config": ADS},
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
    }
    return {"name": name, "type": "EDS", "connect_timeout": "1s", "lb_policy": "ROUND_ROBIN", **config, **more}


def assignment(name: str, weights: Mapping[int, int]) -> Tree:
    """`weights` by port on loopback."""
    endpoints = [
        {
            "endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}},
            "load_balancing_weight": weight,
        }
        for port, weight in weights.items()
    ]
    return {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]}


def routes(action: Tree) -> Tree:
    every = {"match": {"prefix": "/"}, "route": {"timeout": "0s", **action}}
    return {"name": "llm", "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [every]}]}


def world(
    pools: Mapping[str, Mapping[int, int]], *, to: str, layer: Tree | None = None, **of_cluster: Any
) -> Resources:
    """Clusters with the weights of their ports, and one route."""
    return Resources(
        1,
        {
            Kind.CDS: {name: cluster(name, **of_cluster) for name in pools},
            Kind.EDS: {name: assignment(name, weights) for name, weights in pools.items()},
            Kind.RDS: {"llm": routes({"cluster": to})},
            Kind.RTDS: {"llm_runtime": {"name": "llm_runtime", "layer": layer or {}}},
        },
    )


# ── the control plane ────────────────────────────────────────────────────────────────────────────


class Notes:
    """What the control plane heard."""

    def __init__(self) -> None:
        self.pushes: Counter[Kind] = Counter()
        self.acks: list[tuple[Kind, float]] = []
        self.nacks: list[tuple[Kind, str, str]] = []
        self.open = 0

    def stream_opened(self) -> None:
        self.open += 1

    def stream_ended(self) -> None:
        self.open -= 1

    def pushed(self, kind: Kind) -> None:
        self.pushes[kind] += 1

    def acked(self, kind: Kind, seconds: float) -> None:
        self.acks.append((kind, seconds))

    def nacked(self, kind: Kind, node: str, reason: str) -> None:
        self.nacks.append((kind, node, reason))


class ControlPlane:
    """Serves ADS on a unix socket; may be stopped and started again, and then begins with nothing."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.notes = Notes()
        self.views: dict[str, Encoded] = {}

    async def start(self) -> None:
        self.board: Board[Encoded] = Board(NOTHING)
        self._servicer = AdsServicer(view=self._view, board=self.board, observer=self.notes, clock=time.monotonic)
        self._server = grpc_server.server(1 << 20)
        self._server.add_generic_rpc_handlers((handler(self._servicer),))
        grpc_server.bind(self._server, f"unix:{self.socket}")
        await self._server.start()

    async def stop(self) -> None:
        """As at a shutdown: streams end by themselves, nobody waits for the grace time."""
        self._servicer.drain()
        async with asyncio.timeout(3):
            await self._server.stop(30)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _view(self, _: str, node_cluster: str) -> Encoded | None:
        return self.views.get(node_cluster, self.board.current)

    def publish(self, resources: Resources) -> None:
        """Without `check`: Envoy gets whatever can be encoded."""
        generation = self.board.current.generation + 1
        numbered = Resources(generation, resources.by_kind)
        self.board.publish(encode(numbered, self.board.current))

    async def accepted(self, resources: Resources) -> None:
        """Publish, and wait until Envoy works with all of it."""
        pushes, answers = self.notes.pushes.total(), len(self.notes.acks) + len(self.notes.nacks)
        self.publish(resources)
        await until(lambda: self.notes.pushes.total() > pushes, what="a push")
        await until(
            lambda: self.notes.pushes.total() - pushes == len(self.notes.acks) + len(self.notes.nacks) - answers,
            what="answers",
        )


# ── engines and clients ──────────────────────────────────────────────────────────────────────────


class Upstream:
    """An engine that counts requests, and connections by how they came and went."""

    async def __aenter__(self) -> Self:
        self.requests = self.opened = self.closed = 0
        self.port = free_port()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n%05d" % self.port
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                self.requests += 1
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.closed += 1
            writer.close()


class Clients:
    """Workers that ask one after the other on connections they keep, until the block is left."""

    def __init__(self, port: int, *, workers: int = 4) -> None:
        self._port, self._workers = port, workers
        self.statuses: Counter[int] = Counter()
        self.answered_by: Counter[int] = Counter()
        self.broken = 0

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._work()) for _ in range(self._workers)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def more(self, count: int) -> Counter[int]:
        """Wait for this many further answers; who gave them, by port."""
        before, goal = self.answered_by.copy(), self.statuses.total() + count
        await until(lambda: self.statuses.total() >= goal, within_s=30, what="answers")
        return self.answered_by - before

    @property
    def failed(self) -> int:
        return self.broken + sum(count for status, count in self.statuses.items() if status != 200)

    async def _work(self) -> None:
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                while True:
                    status, body = await ask(reader, writer)
                    self.statuses[status] += 1
                    if status == 200:
                        self.answered_by[int(body)] += 1
            except (OSError, asyncio.IncompleteReadError):
                self.broken += 1
                await asyncio.sleep(0.01)


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[int, bytes]:
    """One request on an open connection."""
    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
    return int(head.split(b" ")[1]), await reader.readexactly(int(length or 0))


# ── Envoy ────────────────────────────────────────────────────────────────────────────────────────


def bootstrap(socket: Path, *, node_cluster: str = "llm") -> Tree:
    """Clusters, endpoints, routes and runtime over ADS; listener and the way to the control plane are static."""
    retry = {"retry_back_off": {"base_interval": "0.05s", "max_interval": "0.2s"}}
    service = {"envoy_grpc": {"cluster_name": "control", "retry_policy": retry}}
    ads = {"api_type": "GRPC", "transport_api_version": "V3", "set_node_on_first_message_only": True, "grpc_services": [service]}  # fmt: skip
    http2 = {HTTP.rpartition("/")[2]: {"@type": HTTP, "explicit_http_config": {"http2_protocol_options": {}}}}
    pipe = {"endpoint": {"address": {"pipe": {"path": str(socket)}}}}
    control = {
        "name": "control",
        "type": "STATIC",
        "connect_timeout": "1s",
        "typed_extension_protocol_options": http2,
        "load_assignment": {"cluster_name": "control", "endpoints": [{"lb_endpoints": [pipe]}]},
    }
    return {
        "node": {"id": f"{node_cluster}-1", "cluster": node_cluster},
        "dynamic_resources": {"ads_config": ads, "cds_config": ADS},
        "layered_runtime": {
            "layers": [
                {"name": "base", "static_layer": {"re2.max_program_size.error_level": 20000}},
                {"name": "rtds", "rtds_layer": {"name": "llm_runtime", "rtds_config": ADS}},
                {"name": "admin", "admin_layer": {}},
            ]
        },
        "static_resources": {"clusters": [control], "listeners": [_listener(ADS)]},
    }


def from_files(folder: Path) -> Tree:
    """The same from files, with no control plane in it at all."""

    def file(name: str) -> Tree:
        source = {"path": str(folder / name), "watched_directory": {"path": str(folder)}}
        return {"path_config_source": source, "resource_api_version": "V3"}

    return {
        "node": {"id": "files", "cluster": "llm"},
        "dynamic_resources": {"cds_config": file("cds.json")},
        "layered_runtime": {
            "layers": [{"name": "rtds", "rtds_layer": {"name": "llm_runtime", "rtds_config": file("rtds.json")}}]
        },
        "static_resources": {"listeners": [_listener(file("rds.json"))]},
    }


def _listener(source: Tree) -> Tree:
    packages = "type.googleapis.com/envoy.extensions.filters"
    router = {"name": "envoy.filters.http.router", "typed_config": {"@type": f"{packages}.http.router.v3.Router"}}
    manager = {
        "@type": f"{packages}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "rds": {"route_config_name": "llm", "config_source": source},
        "http_filters": [router],
    }
    filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    return {"name": "llm", "filter_chains": [{"filters": filters}]}


class Envoy:
    """The real one, from a bootstrap without addresses: it listens on `port`."""

    def __init__(self, config: Tree, folder: Path) -> None:
        self.port, self.admin_port = free_port(), free_port()
        self.log_path = folder / f"envoy-{self.port}.log"
        config["admin"] = {"address": _address(self.admin_port)}
        config["static_resources"]["listeners"][0]["address"] = _address(self.port)
        written = folder / f"envoy-{self.port}.yaml"
        written.write_text(yaml.safe_dump(config))
        command = [
            str(find_envoy()),
            "-c",
            str(written),
            "--use-dynamic-base-id",
            "--concurrency",
            "1",
            "-l",
            "warning",
        ]
        self.started_at = time.monotonic()
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            await asyncio.to_thread(self._process.wait, 5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(5)

    async def serves(self, *, within_s: float = 10.0) -> float:
        """Wait for the first 200; seconds since the start of Envoy."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            assert self._process.poll() is None, self.log_path.read_text()
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                status, _ = await asyncio.wait_for(ask(reader, writer), 1)
                writer.close()
                if status == 200:
                    return time.monotonic() - self.started_at
            except (OSError, asyncio.IncompleteReadError, TimeoutError):
                pass
            await asyncio.sleep(0.01)
        raise AssertionError(f"served nothing within {within_s} s:\n{self.log_path.read_text()}")

    async def admin(self, path: str) -> str:
        """A page of Envoy's own, "" while there is none."""
        return await asyncio.to_thread(self._admin, path)

    def _admin(self, path: str) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}{path}", timeout=5) as answer:
                return str(answer.read().decode())
        except (urllib.error.URLError, OSError):
            return ""

    async def weights(self, name: str) -> dict[int, int]:
        """By port, as Envoy itself tells."""
        page = json.loads(await self.admin("/clusters?format=json"))
        found = [each for each in page["cluster_statuses"] if each["name"] == name]
        hosts: Iterable[Tree] = found[0].get("host_statuses", ()) if found else ()
        return {each["address"]["socket_address"]["port_value"]: each["weight"] for each in hosts}

    async def stats(self, pattern: str) -> dict[str, int]:
        lines = (await self.admin(f"/stats?filter={pattern}")).splitlines()
        pairs = (line.partition(": ") for line in lines)
        return {name: int(value) for name, _, value in pairs if value.isdigit()}


def _address(port: int) -> Tree:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}

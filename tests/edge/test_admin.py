"""The admin pages over real HTTP."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web

from extproc import __version__
from extproc.edge.admin import (
    LINKS,
    AdminSources,
    application,
    describe,
    metrics_application,
    start,
    status_sections,
)
from extproc.edge.live_page import LivePage
from extproc.errors import CannotStart
from extproc.model.names import Engine
from extproc.model.topology import Role
from extproc.registry import PoolFacts
from extproc.snapshot import Limits, Snapshot
from tests.ports import free_port

PAGES = ("/", "/metrics", "/healthz", "/readyz", "/config", "/snapshot", "/weights", "/traffic")


POOLS = [{"name": "chat", "engine": "vllm", "total": 1000}, {"name": "<b>", "engine": "triton"}]


class Color(StrEnum):
    RED = "red"


class World:
    """Sources that a test can change while the server runs."""

    def __init__(self) -> None:
        self.not_ready: str | None = None
        self.settings: dict[str, object] = {"b": 1, "a": {"token": {"env": "EXTPROC_TOKEN"}}}
        self.world: dict[str, object] = {
            "generation": 3,
            "parameter_set": "default@abc",
            "pools": [{"name": "chat", "engine": "vllm"}, {"name": "<b>", "engine": "triton"}],
            "limits": {"max_body_bytes": 1048576},
        }
        self.weights: dict[str, object] = {"pools": POOLS}

    def sources(self) -> AdminSources:
        return AdminSources(
            ready=lambda: self.not_ready,
            config=lambda: self.settings,
            snapshot=lambda: self.world,
            weights=lambda: self.weights,
            traffic=lambda: {"rates": []},
            status=lambda: {"breakers": []},
            events=lambda: ({"kind": "drift"},),
            metrics=lambda: (b"llm_x 1\n", "text/plain; version=0.0.4; charset=utf-8"),
            uptime=lambda: 90061.7,
        )


class Client:
    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    def opened(self, path: str) -> Any:
        return self._session.get(path)

    async def get(self, path: str, method: str = "GET") -> tuple[int, str, Any]:
        async with self._session.request(method, path) as response:
            return response.status, await response.text(), response.headers


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def client(world: World) -> AsyncIterator[Client]:
    port = free_port()
    sources = world.sources()
    app = application(sources)
    LivePage(lambda: status_sections(sources), LINKS).add_to(app)
    runner = await start(app, "127.0.0.1", port)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        yield Client(session)
    await runner.cleanup()


async def test_the_status_page_shows_the_state_and_is_complete_in_itself(client: Client) -> None:
    status, text, headers = await client.get("/")
    assert status == 200
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    for expected in (__version__, "1 day, 1:01:01", "default@abc", "chat", "vllm", 'href="/metrics"'):
        assert expected in text
    assert "http:" not in text and "https:" not in text and " src=" not in text and "style=" not in text
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy


async def test_pages_without_a_script_allow_none(client: Client) -> None:
    for path in ("/config", "/live", "/nothing", "/metrics"):
        async with client.opened(path) as response:
            assert response.headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"


async def test_the_status_page_escapes_what_it_shows(client: Client) -> None:
    _, text, _ = await client.get("/")
    assert "&lt;b&gt;" in text
    assert "<b>" not in text


async def test_the_status_page_stands_an_empty_world(client: Client, world: World) -> None:
    world.world = world.weights = {}
    world.not_ready = "draining"
    status, text, _ = await client.get("/")
    assert status == 200
    assert "draining" in text
    assert "none" in text


async def test_metrics_keep_their_content_type(client: Client) -> None:
    status, text, headers = await client.get("/metrics")
    assert (status, text) == (200, "llm_x 1\n")
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"


async def test_ready_follows_the_state_and_healthy_does_not(client: Client, world: World) -> None:
    assert (await client.get("/readyz"))[:2] == (200, "ready\n")
    world.not_ready = "draining"
    assert (await client.get("/readyz"))[:2] == (503, "draining\n")
    assert (await client.get("/healthz"))[:2] == (200, "ok\n")
    world.not_ready = None
    assert (await client.get("/readyz"))[0] == 200


async def test_config_is_json_in_its_own_order(client: Client) -> None:
    status, text, headers = await client.get("/config")
    assert status == 200
    assert headers["Content-Type"] == "application/json"
    assert text == '{\n  "b": 1,\n  "a": {\n    "token": {\n      "env": "EXTPROC_TOKEN"\n    }\n  }\n}\n'


async def test_config_shows_values_json_does_not_know(client: Client, world: World) -> None:
    world.settings = {"path": Path("/etc/x"), "color": Color.RED, "day": {1: None}}
    status, text, _ = await client.get("/config")
    assert status == 200
    assert '"/etc/x"' in text and '"red"' in text


async def test_snapshot_is_json(client: Client) -> None:
    status, text, _ = await client.get("/snapshot")
    assert status == 200
    assert '"generation": 3' in text


async def test_weights_are_json(client: Client) -> None:
    status, text, headers = await client.get("/weights")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert json.loads(text) == {"pools": POOLS}


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
async def test_nothing_can_be_changed(client: Client, path: str, method: str) -> None:
    assert (await client.get(path, method))[0] == 405


@pytest.mark.parametrize("path", PAGES)
async def test_head_is_get_without_a_body(client: Client, path: str) -> None:
    status, text, headers = await client.get(path, "HEAD")
    assert (status, text) == (200, "")
    assert headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("path", ["/nothing", "/config/", "/%2e%2e/etc/passwd"])
async def test_any_other_path_is_not_found(client: Client, path: str) -> None:
    status, _, headers = await client.get(path)
    assert status == 404
    assert headers["Server"] == "extproc"


async def test_a_failing_source_is_a_500_that_tells_nothing(client: Client, world: World) -> None:
    class Broken:
        def __str__(self) -> str:
            raise LookupError("secret")

    world.settings = {"broken": Broken()}
    status, text, _ = await client.get("/config")
    assert status == 500
    assert "secret" not in text and "Traceback" not in text


async def test_the_second_address_has_metrics_and_probes_only(world: World) -> None:
    port = free_port()
    runner = await start(metrics_application(world.sources()), "127.0.0.1", port)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        statuses = [(await Client(session).get(path))[0] for path in PAGES]
    await runner.cleanup()
    assert statuses == [404, 200, 200, 200, 404, 404, 404, 404]


async def test_a_taken_port_is_one_clear_line(world: World) -> None:
    port = free_port()
    app = application(world.sources())
    cleaned: list[web.Application] = []

    async def clean(app: web.Application) -> None:
        cleaned.append(app)

    app.on_cleanup.append(clean)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with pytest.raises(CannotStart) as caught:
            await start(app, "127.0.0.1", port)
    assert cleaned == [app]
    assert str(caught.value) == f"the admin port 127.0.0.1:{port} cannot be opened: Address already in use"
    runner = await start(application(world.sources()), "127.0.0.1", port)
    await runner.cleanup()


@pytest.mark.parametrize(("host", "port"), [("nowhere.invalid", 20_000), ("127.0.0.1", 70_000)])
async def test_an_impossible_address_is_one_clear_line(world: World, host: str, port: int) -> None:
    with pytest.raises(CannotStart) as caught:
        await start(application(world.sources()), host, port)
    assert str(caught.value).startswith(f"the admin port {host}:{port} cannot be opened: ")
    assert "\n" not in str(caught.value)


def test_a_snapshot_is_described_in_plain_values() -> None:
    nothing = cast(Any, None)

    class Registry:
        pools = (PoolFacts("chat", Engine.VLLM, True, Role.LIGHT, "awq-4bit", 0.982, "a100/80GB"),)

    snapshot = Snapshot(
        generation=4,
        parameter_set="default@abc",
        parameters=nothing,
        registry=cast(Any, Registry()),
        trust=nothing,
        tenants=nothing,
        classifiers=(),
        limits=Limits(max_body_bytes=10, max_keys=20),
        lowest_latency_paths=("/v1/fast",),
        encoded_bodies_pass=False,
        safe=nothing,
        safe_set="safe@0",
        degrade=nothing,
        fallback=nothing,
    )
    assert describe(snapshot) == {
        "generation": 4,
        "parameter_set": "default@abc",
        "pools": [
            {
                "name": "chat",
                "engine": "vllm",
                "schedules_by_priority": True,
                "role": "light",
                "variant": "awq-4bit",
                "accuracy": 0.982,
                "hardware": "a100/80GB",
                "served_model": None,
            }
        ],
        "limits": {"max_body_bytes": 10, "max_keys": 20},
        "lowest_latency_paths": ["/v1/fast"],
        "encoded_bodies_pass": False,
    }

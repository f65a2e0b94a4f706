"""Health of engines over real gRPC and HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from extproc.edge.engine_health import EngineHealth, is_alive, url
from extproc.edge.scrape import Pages
from extproc.engines.failures import Cause, Failure
from extproc.loops.health_checks import Checked, HealthChecks
from extproc.model.names import Engine
from extproc.model.topology import Endpoint
from extproc.standin.server import start
from tests.ports import free_port

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Triton:
    """A server that knows `grpc.health.v1` alone, started and stopped at will."""

    def __init__(self) -> None:
        self.port = free_port()
        self.endpoint = Endpoint("127.0.0.1", 1, self.port)
        self.servicer = health.aio.HealthServicer()
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        health_pb2_grpc.add_HealthServicer_to_server(self.servicer, self._server)
        self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(0)


@pytest.fixture
async def triton() -> AsyncIterator[Triton]:
    triton = Triton()
    await triton.start()
    yield triton
    await triton.stop()


@pytest.fixture
async def checks() -> AsyncIterator[EngineHealth]:
    pages = Pages(timeout_s=0.8)
    checks = EngineHealth(get=pages.fetch, timeout_s=0.5)
    yield checks
    await checks.close()
    await pages.close()


async def test_triton_serves_or_not(checks: EngineHealth, triton: Triton) -> None:
    await triton.servicer.set("", NOT_SERVING)
    assert await checks.check(Engine.TRITON, triton.endpoint) == Failure(Cause.NOT_SERVING)
    await triton.servicer.set("", SERVING)
    assert await checks.check(Engine.TRITON, triton.endpoint) is None


async def test_triton_that_goes_and_comes_back_is_seen_within_seconds(checks: EngineHealth, triton: Triton) -> None:
    await triton.servicer.set("", SERVING)
    assert await checks.check(Engine.TRITON, triton.endpoint) is None
    await triton.stop()
    found = await checks.check(Engine.TRITON, triton.endpoint)
    assert found is not None and found.cause in (Cause.REFUSED, Cause.TIMEOUT)
    await triton.start()
    deadline = time.monotonic() + 10
    while await checks.check(Engine.TRITON, triton.endpoint) is not None:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)


async def test_a_server_that_accepts_and_says_nothing_is_a_timeout(checks: EngineHealth) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    port = free_port()
    async with await asyncio.start_server(handle, "127.0.0.1", port):
        found = await checks.check(Engine.TRITON, Endpoint("127.0.0.1", 1, port))
        assert found is not None and found.cause is Cause.TIMEOUT


async def test_a_server_without_the_service(checks: EngineHealth) -> None:
    port, server = free_port(), grpc.aio.server()
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    found = await checks.check(Engine.TRITON, Endpoint("127.0.0.1", 1, port))
    await server.stop(0)
    assert found == Failure(Cause.STATUS, "UNIMPLEMENTED")


@pytest.mark.parametrize("engine", [Engine.VLLM, Engine.LLAMACPP, Engine.TRITON])
async def test_engines_over_http(checks: EngineHealth, engine: Engine) -> None:
    port = free_port()
    runner = await start("127.0.0.1", port)
    endpoint = Endpoint("127.0.0.1", port)
    assert await checks.check(engine, endpoint) is None
    await runner.cleanup()
    found = await checks.check(engine, endpoint)
    assert found is not None and found.cause is Cause.REFUSED


@pytest.mark.parametrize(
    ("engine", "endpoint", "expected"),
    [
        (Engine.VLLM, Endpoint("10.0.0.1", 8000), "http://10.0.0.1:8000/health"),
        (Engine.LLAMACPP, Endpoint("::1", 8080), "http://[::1]:8080/health"),
        (Engine.TRITON, Endpoint("t", 8000, tls=True), "https://t:8000/v2/health/ready"),
        (
            Engine.VLLM,
            Endpoint("10.0.0.1", 443, tls=True, hostname="llm.example"),
            "https://llm.example:443/health",
        ),
        (Engine.VLLM, Endpoint("10.0.0.1", 80, hostname="llm.example"), "http://10.0.0.1:80/health"),
    ],
)
def test_urls(engine: Engine, endpoint: Endpoint, expected: str) -> None:
    assert url(engine, endpoint) == expected


async def test_channels_are_kept_until_left_out(checks: EngineHealth, triton: Triton) -> None:
    await triton.servicer.set("", SERVING)
    for _ in range(2):
        await checks.check(Engine.TRITON, triton.endpoint)
    assert len(checks._channels) == 1
    await checks.retain([triton.endpoint])
    assert len(checks._channels) == 1
    await checks.retain([])
    assert len(checks._channels) == 0
    assert await checks.check(Engine.TRITON, triton.endpoint) is None


async def test_a_killed_engine_is_unhealthy_within_a_few_intervals_and_comes_back(
    checks: EngineHealth, triton: Triton
) -> None:
    """The loop with its real check; what is asserted is the order of events, not their time."""
    await triton.servicer.set("", SERVING)
    changes: asyncio.Queue[bool] = asyncio.Queue()
    loop = HealthChecks(
        check=lambda checked: checks.check(checked.engine, checked.endpoint),
        on_change=lambda _, healthy: changes.put_nowait(healthy),
        interval_s=0.2,
        timeout_s=0.15,
    )
    loop.set_endpoints([Checked("t", Engine.TRITON, triton.endpoint)])
    running = asyncio.create_task(loop.run())
    while loop.condition("t").checks < 2:
        await asyncio.sleep(0.05)
    await triton.stop()
    assert await asyncio.wait_for(changes.get(), 10) is False
    assert loop.condition("t").failed_in_row >= 2
    await triton.start()
    assert await asyncio.wait_for(changes.get(), 10) is True
    running.cancel()


@pytest.mark.parametrize(
    ("failure", "alive"),
    [
        (Failure(Cause.STATUS, "404"), True),
        (Failure(Cause.STATUS, "401"), True),
        (Failure(Cause.STATUS, "429"), False),
        (Failure(Cause.STATUS, "503"), False),
        (Failure(Cause.REFUSED, "404"), False),
    ],
)
def test_a_server_without_a_health_page_is_alive(failure: Failure, alive: bool) -> None:
    assert is_alive(failure) is alive

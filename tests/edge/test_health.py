"""`grpc.health.v1` as a client sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from extproc.edge.health import EXT_PROC, Health

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


class World:
    def __init__(self, health: Health, stub: Any) -> None:
        self.health = health
        self.stub = stub

    async def check(self, service: str) -> int:
        response = await self.stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=5)
        return int(response.status)

    def watch(self, service: str) -> Any:
        return self.stub.Watch(health_pb2.HealthCheckRequest(service=service), timeout=10)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    server = grpc.aio.server()
    health = Health()
    health.add_to(server)
    address = f"unix:{tmp_path}/health.sock"
    server.add_insecure_port(address)
    await server.start()
    async with grpc.aio.insecure_channel(address) as channel:
        yield World(health, health_pb2_grpc.HealthStub(channel))
    await server.stop(0)


@pytest.mark.parametrize("service", ["", EXT_PROC])
async def test_a_check_follows_the_state(world: World, service: str) -> None:
    assert await world.check(service) == NOT_SERVING
    world.health.set_serving(True)
    assert await world.check(service) == SERVING
    world.health.set_serving(False)
    assert await world.check(service) == NOT_SERVING


async def test_an_unknown_service_is_not_found(world: World) -> None:
    world.health.set_serving(True)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await world.check("some.Service")
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


async def test_a_watcher_hears_every_change_once(world: World) -> None:
    watching = world.watch(EXT_PROC)
    assert (await watching.read()).status == NOT_SERVING
    world.health.set_serving(False)  # no change: nothing is sent
    world.health.set_serving(True)
    assert (await watching.read()).status == SERVING
    world.health.set_serving(False)
    assert (await watching.read()).status == NOT_SERVING


async def test_a_watcher_that_leaves_takes_no_other_with_it(world: World) -> None:
    leaves, stays = world.watch(""), world.watch("")
    for watching in (leaves, stays):
        assert (await watching.read()).status == NOT_SERVING
    leaves.cancel()
    await asyncio.sleep(0.1)
    world.health.set_serving(True)
    assert (await asyncio.wait_for(stays.read(), 2)).status == SERVING


async def test_watching_an_unknown_service_says_so_and_waits(world: World) -> None:
    watching = world.watch("some.Service")
    assert (await watching.read()).status == UNKNOWN
    world.health.set_serving(True)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(watching.read(), 0.2)

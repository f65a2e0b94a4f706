"""Triton's gRPC service as the client sees it, from a server that speaks the real messages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from extproc.edge.triton import Servers
from extproc.engines import triton
from extproc.engines.exposition import Point
from extproc.engines.failures import Cause, Failure
from tests.ports import free_port


class Service(service_pb2_grpc.GRPCInferenceServiceServicer):
    def __init__(self) -> None:
        self.done = 100
        self.ready = True

    async def ServerLive(self, request: Any, context: Any) -> Any:
        return service_pb2.ServerLiveResponse(live=True)

    async def ServerReady(self, request: Any, context: Any) -> Any:
        return service_pb2.ServerReadyResponse(ready=self.ready)

    async def ModelStatistics(self, request: Any, context: Any) -> Any:
        if self.done < 0:
            await context.abort(grpc.StatusCode.INTERNAL, "broken")
        answer = service_pb2.ModelStatisticsResponse()
        model = answer.model_stats.add(name="llm", version="1", inference_count=self.done, execution_count=7)
        model.inference_stats.success.count = self.done
        model.inference_stats.success.ns = self.done * 2_000_000
        model.inference_stats.fail.count = 1
        return answer


@pytest.fixture
async def service() -> AsyncIterator[tuple[Service, str]]:
    server, service, port = grpc.aio.server(), Service(), free_port()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(service, server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    yield service, f"grpc://127.0.0.1:{port}"
    await server.stop(0)


@pytest.fixture
async def servers() -> AsyncIterator[Servers]:
    servers = Servers(timeout_s=1)
    yield servers
    await servers.close()


async def test_live_and_ready(service: tuple[Service, str], servers: Servers) -> None:
    triton_server, url = service
    assert (await servers.live(url), await servers.ready(url)) == (True, True)
    triton_server.ready = False
    assert (await servers.live(url), await servers.ready(url)) == (True, False)


async def test_statistics_become_the_pages_rates(service: tuple[Service, str], servers: Servers) -> None:
    triton_server, url = service
    first = await servers.statistics(url)
    triton_server.done = 150
    second = await servers.statistics(url)
    assert not isinstance(first, Failure) and not isinstance(second, Failure)
    assert Point("nv_inference_request_duration_us", {"model": "llm", "version": "1"}, 200_000.0) in first
    _, counters = triton.sample(None, first, now=0.0)
    sample, _ = triton.sample(counters, second, now=5.0)
    assert sample.rates["nv_inference_request_success"] == 10.0
    assert sample.rates["nv_inference_request_duration_us"] == 20_000.0
    assert {point.name for point in first} == set(triton.COUNTERS)


async def test_nobody_there_and_an_error_of_the_server(service: tuple[Service, str], servers: Servers) -> None:
    triton_server, url = service
    gone = await servers.live(f"grpc://127.0.0.1:{free_port()}")
    assert isinstance(gone, Failure)
    assert gone.cause is Cause.REFUSED
    triton_server.done = -1
    broken = await servers.statistics(url)
    assert isinstance(broken, Failure)
    assert broken.cause is Cause.STATUS


async def test_clients_are_kept_until_left_out(service: tuple[Service, str], servers: Servers) -> None:
    _, url = service
    for _ in range(2):
        await servers.live(url)
    assert len(servers._clients) == 1
    await servers.retain({url})
    assert len(servers._clients) == 1
    await servers.retain(())
    assert len(servers._clients) == 0
    assert await servers.live(url) is True

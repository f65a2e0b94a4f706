"""One health check of one engine: `grpc.health.v1` where it speaks gRPC, `GET /health` elsewhere.

A Triton endpoint without a gRPC port is asked on `/v2/health/ready`. The rejected alternative, Envoy's own active
checks, is repeated by each of them and leaves its verdict where no weight sees it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from extproc.engines.failures import Cause, Failure
from extproc.model.names import Engine
from extproc.model.topology import Endpoint, authority

TIMEOUT_S = 0.8

Get = Callable[[str], Awaitable[bytes | Failure]]

CHANNEL: list[tuple[str, Any]] = [
    ("grpc.use_local_subchannel_pool", 1),  # a closed channel takes its connection along
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 800),  # also how long a handshake may take
    ("grpc.max_reconnect_backoff_ms", 1000),  # gRPC's own two minutes would hide an engine that came back
]

PATHS = {Engine.VLLM: "/health", Engine.LLAMACPP: "/health", Engine.TRITON: "/v2/health/ready"}

_CAUSES = {grpc.StatusCode.DEADLINE_EXCEEDED: Cause.TIMEOUT, grpc.StatusCode.UNAVAILABLE: Cause.REFUSED}


class EngineHealth:
    """`get` fetches a page. Channels are kept by endpoint until `retain` leaves them out."""

    def __init__(self, *, get: Get, timeout_s: float = TIMEOUT_S) -> None:
        self._get = get
        self._timeout_s = timeout_s
        self._channels: dict[Endpoint, tuple[grpc.aio.Channel, Any]] = {}

    async def check(self, engine: Engine, endpoint: Endpoint) -> Failure | None:
        """None = it serves."""
        if engine is Engine.TRITON and endpoint.grpc_port is not None:
            return await self._serving(endpoint)
        found = await self._get(url(engine, endpoint))
        return found if isinstance(found, Failure) and not is_alive(found) else None

    async def retain(self, endpoints: Collection[Endpoint]) -> None:
        """Close the channels of all other endpoints."""
        for endpoint in [endpoint for endpoint in self._channels if endpoint not in endpoints]:
            await self._channels.pop(endpoint)[0].close(None)

    async def close(self) -> None:
        await self.retain(())

    async def _serving(self, endpoint: Endpoint) -> Failure | None:
        try:
            answer = await self._stub(endpoint).Check(health_pb2.HealthCheckRequest(), timeout=self._timeout_s)
        except grpc.aio.AioRpcError as error:
            return Failure(_CAUSES.get(error.code(), Cause.STATUS), error.code().name)
        if answer.status == health_pb2.HealthCheckResponse.SERVING:
            return None
        return Failure(Cause.NOT_SERVING)

    def _stub(self, endpoint: Endpoint) -> Any:
        known = self._channels.get(endpoint)
        if known is None:
            channel = _channel(endpoint)
            known = self._channels[endpoint] = (channel, health_pb2_grpc.HealthStub(channel))
        return known[1]


def is_alive(failure: Failure) -> bool:
    """A server that answers with a 4xx has no health page, or shows it to others; it is there and it answers."""
    return failure.cause is Cause.STATUS and failure.detail.startswith("4") and failure.detail not in ("408", "429")


def url(engine: Engine, endpoint: Endpoint) -> str:
    """Where an engine says over HTTP how it is. Over TLS it is asked by its name, which its certificate is of."""
    if endpoint.tls and endpoint.hostname:
        return f"https://{endpoint.hostname}:{endpoint.http_port}{PATHS[engine]}"
    return (
        f"{'https' if endpoint.tls else 'http'}://{authority(endpoint.address, endpoint.http_port)}{PATHS[engine]}"
    )


def _channel(endpoint: Endpoint) -> grpc.aio.Channel:
    target = authority(endpoint.address, endpoint.grpc_port)
    if endpoint.tls:
        return grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(), options=CHANNEL)
    return grpc.aio.insecure_channel(target, options=CHANNEL)

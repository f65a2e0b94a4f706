"""`grpc.health.v1` on our own gRPC server: whether this process takes ext_proc streams.

Messages and registration come from grpcio-health-checking. Its asyncio servicer is not used: it forgets the
condition all watchers of a service wait on when one of them leaves, so the others never hear of a drain, and
its statuses can only be set by awaiting, which a signal handler cannot do.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

EXT_PROC = "envoy.service.ext_proc.v3.ExternalProcessor"

SERVICES = ("", EXT_PROC)
"""All of one status; any other service is unknown. The empty name stands for the whole server."""

Response = health_pb2.HealthCheckResponse


class Health:
    """The servicer. NOT_SERVING until told otherwise. Used from the event loop's thread only."""

    def __init__(self) -> None:
        self._status = Response.NOT_SERVING
        self._changed = asyncio.Event()

    def set_serving(self, serving: bool) -> None:
        """Answer checks with this from here on, and tell all watchers."""
        self._status = Response.SERVING if serving else Response.NOT_SERVING
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def add_to(self, server: grpc.aio.Server) -> None:
        """Before the server starts."""
        health_pb2_grpc.add_HealthServicer_to_server(self, server)

    async def Check(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        if request.service not in SERVICES:
            await context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        return Response(status=self._status)

    async def Watch(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """Send the status and every change of it, until the client leaves."""
        sent = None
        while True:
            changed = self._changed
            status = self._status if request.service in SERVICES else Response.SERVICE_UNKNOWN
            if status != sent:
                await context.write(Response(status=status))
                sent = status
            await changed.wait()

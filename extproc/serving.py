"""The decision path's server, over the configured transport."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from extproc.edge import ext_proc, grpc_server, health, http2_server
from extproc.settings import Settings

Stop = Callable[[float], Awaitable[None]]
"""Takes no new streams; those under way may go on for so many seconds."""


async def serve(
    settings: Settings, servicer: ext_proc.ExtProcServicer, address: str, checks: health.Health | None = None
) -> tuple[str, Stop]:
    """What it listens on, and how to end it. `checks`: health on the same address, where the transport has it."""
    if settings.transport == "fast":
        return await _fast(settings, servicer, address)
    return await _grpc(settings, servicer, address, checks)


async def _fast(settings: Settings, servicer: ext_proc.ExtProcServicer, address: str) -> tuple[str, Stop]:
    most = settings.limits.max_body_bytes + grpc_server.MESSAGE_MARGIN_BYTES
    settle = servicer.recorder.settle
    server = http2_server.Http2Server({ext_proc.PATH: servicer}, max_message_bytes=most, settle=settle)
    listening, bound = grpc_server.listening(address)
    await server.start(listening)
    return bound, server.stop


async def _grpc(
    settings: Settings, servicer: ext_proc.ExtProcServicer, address: str, checks: health.Health | None
) -> tuple[str, Stop]:
    server = grpc_server.server(settings.limits.max_body_bytes)
    server.add_generic_rpc_handlers((ext_proc.handler(servicer),))
    if checks is not None:
        checks.add_to(server)
    bound = grpc_server.bind(server, address)
    await server.start()
    return bound, server.stop

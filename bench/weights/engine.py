"""The engines as HTTP servers, all in one process: `python -m bench.weights.engine FILE`.

Bare asyncio protocols: what a web framework takes for a request is a tenth of its service time at this rate.
`GET /metrics` is a page as DCGM's exporter has it, `/health` says 200, and anything else is work that takes what
the header `x-service-s` says.
"""

from __future__ import annotations

import asyncio
import re
import signal
import sys
import time
from pathlib import Path
from typing import cast

import msgspec
import uvloop
from msgspec import Struct

from bench.weights.model import EngineModel
from bench.weights.scenario import Degraded, Memory

OUT_OF_MEMORY = b"CUDA out of memory"

_SERVICE = re.compile(rb"\r\nx-service-s: ([0-9.e-]+)", re.IGNORECASE)

PAGE = """\
# HELP DCGM_FI_DEV_FB_USED Framebuffer memory used (in MiB).
# TYPE DCGM_FI_DEV_FB_USED gauge
DCGM_FI_DEV_FB_USED{{gpu="0",UUID="GPU-{name}",Hostname="node",instance="{host}"}} {used:.0f}
# HELP DCGM_FI_DEV_FB_FREE Framebuffer memory free (in MiB).
# TYPE DCGM_FI_DEV_FB_FREE gauge
DCGM_FI_DEV_FB_FREE{{gpu="0",UUID="GPU-{name}",Hostname="node",instance="{host}"}} {free:.0f}
"""


class Server(Struct, frozen=True):
    """One engine. `degraded_at` in seconds of the system's monotonic clock."""

    port: int
    degraded_at: float | None


class Plan(Struct, frozen=True):
    servers: tuple[Server, ...]
    slots: int
    memory: Memory
    degraded: Degraded


class Connection(asyncio.Protocol):
    """HTTP/1.1 without request bodies, one request at a time: all that Envoy and a scraper send here."""

    def __init__(self, model: EngineModel, port: int) -> None:
        self._model = model
        self._port = port
        self._unread = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        *heads, self._unread = (self._unread + data).split(b"\r\n\r\n")
        for head in heads:
            self._asked(head)

    def _asked(self, head: bytes) -> None:
        now = time.monotonic()
        if head.startswith(b"GET /metrics"):
            return self._answer(b"200 OK", page(self._model, self._port, now=now))
        found = _SERVICE.search(head)
        if found is None:
            return self._answer(b"200 OK", b"{}")
        ends = self._model.take(float(found[1]), now=now)
        if ends is None:
            return self._answer(b"503 Service Unavailable", OUT_OF_MEMORY)
        asyncio.get_running_loop().call_later(ends - now, self._answer, b"200 OK", b"{}")

    def _answer(self, status: bytes, body: bytes) -> None:
        if self._transport is not None:
            head = b"HTTP/1.1 %b\r\nx-engine: %d\r\ncontent-length: %d\r\n\r\n" % (status, self._port, len(body))
            self._transport.write(head + body)


def page(model: EngineModel, port: int, *, now: float) -> bytes:
    used = model.used_mib(now=now)
    free = max(0.0, model.total_mib(now=now) - used)
    return PAGE.format(name=port, host=f"127.0.0.1:{port}", used=used, free=free).encode()


async def serve(plan: Plan) -> None:
    """Until SIGTERM."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    for server in plan.servers:
        model = EngineModel(plan.slots, plan.memory, plan.degraded, server.degraded_at)
        port = server.port
        await loop.create_server(lambda m=model, p=port: Connection(m, p), "127.0.0.1", port)
    await stop.wait()


if __name__ == "__main__":
    uvloop.run(serve(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Plan)))

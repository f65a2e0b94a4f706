"""The observer as a process of its own, so that its memory can be measured: verdicts as JSON lines.

`--delay-s` makes it sleep before every message it reads.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path
from typing import Any

import grpc
import msgspec

from extproc.edge import grpc_server, usage
from extproc.model.telemetry import UsageSample
from extproc.usage.seen import Outcome


class Lines:
    """One line for each stream; a sample on a line of its own, before the next stream's."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def usage_ended(self, outcome: Outcome, reason: str) -> None:
        self._write({"outcome": outcome, "reason": reason})

    def usage(self, sample: UsageSample) -> None:
        self._write({"sample": sample})

    def _write(self, value: Any) -> None:
        self._file.write(msgspec.json.encode(value) + b"\n")


class Slow:
    """A context whose messages come late."""

    def __init__(self, context: grpc.aio.ServicerContext[Any, Any], delay_s: float) -> None:
        self._context = context
        self._delay_s = delay_s

    async def read(self) -> Any:
        await asyncio.sleep(self._delay_s)
        return await self._context.read()  # type: ignore[attr-defined]


class SlowObserver(usage.UsageObserver):
    delay_s = 0.0

    async def process(self, requests: object, context: Any) -> None:
        await super().process(requests, Slow(context, self.delay_s) if self.delay_s else context)


async def run(socket: str, out: Path, delay_s: float) -> None:
    server = grpc.aio.server(options=[*usage.SERVER_OPTIONS, ("grpc.so_reuseport", 0)])
    observer = SlowObserver(recorder=Lines(out), max_held_bytes=1 << 16, max_streams=1000)
    observer.delay_s = delay_s
    server.add_generic_rpc_handlers((usage.handler(observer),))
    grpc_server.bind(server, socket)
    await server.start()
    print("observing", flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    await server.stop(0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--delay-s", type=float, default=0.0)
    given = parser.parse_args()
    asyncio.run(run(given.socket, given.out, given.delay_s))

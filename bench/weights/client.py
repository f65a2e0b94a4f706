"""The load, open loop: requests go out when they are due, whatever became of those before.

`python -m bench.weights.client PLAN RESULT`. A closed loop would slow down with the slowest engine and hide what
its clients wait. Latency counts from the moment a request was due, so that a late client shows up as latency.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections import deque
from pathlib import Path
from typing import cast

import msgspec
import uvloop
from msgspec import Struct

from bench.weights.engine import OUT_OF_MEMORY
from bench.weights.work import Work

PATIENCE_S = 20.0
"""For what is still on its way at the end."""

HALF_TICK_S = 0.0005
"""uvloop rounds to milliseconds: without it, the last one would be waited for in a busy loop."""

LOST = 0
OVERFLOW = -1
"""In place of a status: no answer; and an answer that says the memory did not hold the request."""

_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)
_ENGINE = re.compile(rb"\r\nx-engine: (\d+)", re.IGNORECASE)


class Target(Struct, frozen=True):
    variant: str
    port: int


class Plan(Struct, frozen=True):
    """`start_at`: the system's monotonic clock at second 0 of the work."""

    targets: tuple[Target, ...]
    work: Work
    start_at: float


class Seen(Struct):
    """What became of each request of a variant, in the order of the work. `engine`: its port, 0 = not known."""

    variant: str
    lag_s: list[float]
    latency_s: list[float]
    status: list[int]
    engine: list[int]


class Connections:
    """To one variant: kept while idle, as many as needed."""

    def __init__(self, target: Target, count: int) -> None:
        self.seen = Seen(target.variant, [0.0] * count, [0.0] * count, [LOST] * count, [0] * count)
        self.open = 0
        self._port = target.port
        self._idle: deque[Connection] = deque()

    def send(self, index: int, service_s: float, due: float) -> None:
        self.seen.lag_s[index] = time.monotonic() - due
        head = b"GET /work HTTP/1.1\r\nhost: engine\r\nx-service-s: %.6f\r\n\r\n" % service_s
        while self._idle:
            if self._idle.pop().ask(head, index, due):
                return
        opening = asyncio.get_running_loop().create_connection(lambda: Connection(self), "127.0.0.1", self._port)
        _TASKS.add(task := asyncio.get_running_loop().create_task(self._first(opening, head, index, due)))
        task.add_done_callback(_TASKS.discard)

    async def _first(self, opening, head: bytes, index: int, due: float) -> None:  # type: ignore[no-untyped-def]
        _, connection = await opening
        connection.ask(head, index, due)

    def answered(self, connection: Connection, index: int, due: float, status: int, engine: int) -> None:
        seen = self.seen
        seen.latency_s[index] = time.monotonic() - due
        seen.status[index], seen.engine[index] = status, engine
        self._idle.append(connection)


_TASKS: set[asyncio.Task[None]] = set()


class Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self, owner: Connections) -> None:
        self._owner = owner
        self._unread = b""
        self._asked: tuple[int, float] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    def ask(self, head: bytes, index: int, due: float) -> bool:
        """False where the connection is gone."""
        if self._transport is None:
            return False
        self._asked = (index, due)
        self._transport.write(head)
        return True

    def data_received(self, data: bytes) -> None:
        self._unread += data
        head, end, body = self._unread.partition(b"\r\n\r\n")
        if not end or self._asked is None:
            return
        length, engine = _LENGTH.search(head), _ENGINE.search(head)
        if length is None or len(body) < int(length[1]):
            return
        self._unread = b""
        (index, due), self._asked = self._asked, None
        status = OVERFLOW if body == OUT_OF_MEMORY else int(head[9:12])
        self._owner.answered(self, index, due, status, int(engine[1]) if engine else 0)


async def put(plan: Plan) -> list[Seen]:
    """Each request goes to all variants at its moment, in an order that changes, so that none is always first."""
    count = len(plan.work.at_s)
    all_of_them = [Connections(target, count) for target in plan.targets]
    for index, (at_s, service_s) in enumerate(zip(plan.work.at_s, plan.work.service_s, strict=True)):
        due = plan.start_at + at_s
        while (wait_s := due - time.monotonic()) > 0:
            await asyncio.sleep(wait_s + HALF_TICK_S)
        first = index % len(all_of_them)
        for connections in all_of_them[first:] + all_of_them[:first]:
            connections.send(index, service_s, due)
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and any(LOST in each.seen.status for each in all_of_them):
        await asyncio.sleep(0.1)
    return [each.seen for each in all_of_them]


if __name__ == "__main__":
    _plan = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Plan)
    Path(sys.argv[2]).write_bytes(msgspec.msgpack.encode(uvloop.run(put(_plan))))

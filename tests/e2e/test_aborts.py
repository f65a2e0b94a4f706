"""Clients that leave at any moment: nothing stays open, nothing spins, and the next request is judged as ever."""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.asking import CHAT, STRICT, ask, chat
from tests.e2e.running import Engine, Stack, until

ABORTS = {"fast": int(os.environ.get("ABORTS", "10000")), "grpc": int(os.environ.get("ABORTS", "10000")) // 10}
"""How many clients leave; more by hand."""

CLIENTS = 50  # at a time
SEED = 20_260_601

EVENT_GAP_MS = 10.0
"""An answer of the stand-in has some twenty events: it streams for long enough to be left in the middle."""

LAST_CHUNK = b"\r\n0\r\n\r\n"

SPARE_FILES = 10
"""More than at the start: a look at an engine may be under way, or a request's connection not yet given up."""

IDLE_S = 2.0
IDLE_SHARE = 0.1
LOOKS = 4
"""A spinning process uses a whole core in every look; a busy machine, or work left over, spoils only some."""

MOMENTS = ("in the head", "before the body", "in the body", "after the request", "in the answer")
WAYS = ("close", "reset")


@dataclass(frozen=True)
class Abort:
    """One client: sends `data`, reads until it has seen an event if `reads`, waits `wait_s`, and leaves."""

    moment: str
    way: str
    data: bytes
    reads: bool
    wait_s: float


def aborts(count: int, seed: int) -> Iterator[Abort]:
    drawn = random.Random(seed)
    bodies = [body(size) for size in (0, 0, 0, 2_000, 2_000, 60_000)]
    for _ in range(count):
        moment = drawn.choice(MOMENTS)
        head, data = request(drawn.choice(bodies), is_chunked=drawn.random() < 0.3)
        cut = {
            "in the head": drawn.randrange(1, len(head)),
            "before the body": len(head),
            "in the body": len(head) + drawn.randrange(1, len(data)),
        }.get(moment, len(head) + len(data))
        wait_s = drawn.choice((0.0, drawn.uniform(0, 0.02), drawn.uniform(0, 0.1)))
        yield Abort(moment, drawn.choice(WAYS), (head + data)[:cut], moment == "in the answer", wait_s)


def body(size: int) -> bytes:
    return json.dumps(chat(f"{'word ' * (size // 5)}{STRICT}", temperature=1, stream=True)).encode()


def request(data: bytes, *, is_chunked: bool) -> tuple[bytes, bytes]:
    """Head and body."""
    head = b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n" % CHAT.encode()
    if not is_chunked:
        return head + b"content-length: %d\r\n\r\n" % len(data), data
    chunks = [data[at : at + 16_384] for at in range(0, len(data), 16_384)]
    return head + b"transfer-encoding: chunked\r\n\r\n", b"".join(
        b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in [*chunks, b""]
    )


async def leave(port: int, abort: Abort) -> bytes:
    """What had been read by then."""
    loop, read = asyncio.get_running_loop(), b""
    with socket.socket() as client:
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", port))
        await loop.sock_sendall(client, abort.data)
        while abort.reads and b"data: " not in read:
            block = await loop.sock_recv(client, 65_536)
            assert block, f"ended before an event: {read[:300]!r}"
            read += block
        if abort.wait_s:
            await asyncio.sleep(abort.wait_s)
        if abort.way == "reset":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return read


async def leave_all(port: int, wanted: Iterator[Abort]) -> Counter[tuple[str, str]]:
    """How many left when and how. Each client takes the next one as soon as it has left."""
    tally: Counter[tuple[str, str]] = Counter()

    async def work() -> None:
        for abort in wanted:
            async with asyncio.timeout(20):
                read = await leave(port, abort)
            if not read.endswith(LAST_CHUNK):  # else this one was too slow to leave in the middle
                tally[abort.moment, abort.way] += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(work())
    return tally


@pytest.fixture(scope="module")
def left(transport: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack with an engine that takes its time over a stream."""
    engine = Engine(tmp_path_factory.mktemp("engine"), delay_ms=EVENT_GAP_MS)
    try:
        with Stack(engine=engine, changes={"transport": transport}) as running:
            yield running
    finally:
        engine.stop()


def judge(stack: Stack) -> None:
    answer = ask(stack.port, CHAT, chat(STRICT, temperature=1))
    assert answer.params["temperature"] == 0.3
    assert answer.decided("tier") == "strict"


def active(stack: Stack) -> dict[str, int]:
    """What Envoy holds open for clients, of the sidecar, and of the engine."""
    stats = stack.envoy.stats("")
    names = (
        "http.llm.downstream_rq_active",
        "http.llm.downstream_cx_active",
        "cluster.llm_ext_proc.upstream_rq_active",
    )
    engines = [
        name for name in stats if name.startswith("cluster.engine-") and name.endswith(".upstream_rq_active")
    ]
    assert engines
    return {name: stats[name] for name in (*names, *engines)}


def processes(stack: Stack) -> list[int]:
    """The sidecar's and Envoy's."""
    assert stack.sidecar.running.process.poll() is stack.envoy.process.poll() is None
    return [stack.sidecar.running.pid, stack.envoy.process.pid]


def files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def cpu_s(pid: int) -> float:
    """User and system, of all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def least_shares(pids: list[int]) -> list[float]:
    """Of a core, by each process: the least of some looks, as few as it takes."""
    least = [float("inf")] * len(pids)
    for _ in range(LOOKS):
        before, begun = [cpu_s(pid) for pid in pids], time.monotonic()
        time.sleep(IDLE_S)
        seconds = time.monotonic() - begun
        used = [cpu_s(pid) - start for pid, start in zip(pids, before, strict=True)]
        least = [min(share, cpu / seconds) for share, cpu in zip(least, used, strict=True)]
        if max(least) < IDLE_SHARE:
            break
    return least


def nothing_is_left(stack: Stack, pids: list[int], files_before: list[int]) -> None:
    until(lambda: stack.sidecar.count("llm_streams_open") == 0, what="the sidecar's streams closed")
    until(lambda: not any(active(stack).values()), what="Envoy's requests ended")
    for pid, before in zip(pids, files_before, strict=True):
        until(lambda pid=pid, most=before + SPARE_FILES: files(pid) <= most, what="files closed")  # type: ignore[misc]
    assert max(least_shares(pids)) < IDLE_SHARE
    assert "Traceback" not in stack.sidecar.running.log()
    judge(stack)
    assert pids == processes(stack)


@pytest.mark.timeout(180)
async def test_clients_that_leave_at_any_moment_leave_nothing_behind(left: Stack, transport: str) -> None:
    await asyncio.to_thread(judge, left)
    pids = processes(left)
    files_before = [files(pid) for pid in pids]
    tally = await leave_all(left.port, aborts(ABORTS[transport], SEED))
    assert set(tally) == {(moment, way) for moment in MOMENTS for way in WAYS}
    assert sum(tally.values()) > 0.9 * ABORTS[transport]
    await asyncio.to_thread(nothing_is_left, left, pids, files_before)

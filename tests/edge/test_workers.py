"""Workers as the control process hears them: what they say is counted once and taken when it is safe."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest
import uvloop

from extproc.codec.grpc_messages import Messages, framed
from extproc.codec.workers import (
    MAX_MESSAGE_BYTES,
    Applied,
    Batch,
    Hello,
    SnapshotTold,
    Taken,
    delta_bytes,
    read_told,
    said,
)
from extproc.edge import workers
from extproc.edge.workers import Workers
from extproc.recorded import Counted, Delta

FIRST, SECOND = SnapshotTold(1, b"one", b""), SnapshotTold(2, b"two", b"")
COUNT = 3


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no turn is as long as what a test waits for."""
    monkeypatch.setattr(workers, "TAKE_EVERY_S", 0.001)
    monkeypatch.setattr(workers, "READ_EVERY_S", 0.005)


class Audit:
    """Writes when it is told to; has room for so many."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.written = 0
        self.room = 1000

    def append(self, records: Sequence[bytes]) -> int:
        self.records += records[: self.room - len(self.records)]
        return len(self.records)

    def write(self, records: int | None = None) -> None:
        self.written = len(self.records) if records is None else self.written + records


class Listener:
    def __init__(self) -> None:
        self.counted = 0
        self.seconds = 0.0
        self.joins = 0
        self.open: dict[str, int] = {}

    def joined(self) -> None:
        self.joins += 1

    def merge(self, delta: Delta) -> None:
        self.counted += sum(each.count for each in delta.counted)

    def merge_again(self, delta: Delta) -> None:
        self.counted += sum(each.count for each in delta.counted)

    def decision_seconds(self, seconds: float) -> None:
        self.seconds += seconds

    def open_streams(self, worker: str, streams: int) -> None:
        self.open[worker] = streams


class Peer:
    """A worker's end, which says and reads what a test wants."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.socket.setblocking(False)
        self._messages = Messages(MAX_MESSAGE_BYTES)
        self._told: list[SnapshotTold | Taken] = []

    def say(self, *messages: Hello | Applied | Batch) -> None:
        assert self.socket.send(data := b"".join(map(said, messages))) == len(data)

    async def hello(self, worker: int, generation: int = 0) -> SnapshotTold | Taken:
        self.say(Hello(worker, 4711, generation))
        return await self.told()

    async def told(self) -> SnapshotTold | Taken:
        """The next message; EOFError where the other side has closed."""
        loop = asyncio.get_running_loop()
        while not self._told:
            data = await loop.sock_recv(self.socket, 1 << 16)
            if not data:
                raise EOFError
            self._told += map(read_told, self._messages.feed(data))
        return self._told.pop(0)

    async def closed(self) -> bool:
        """Told nothing more."""
        try:
            await self.told()
        except (EOFError, ConnectionResetError):
            return True
        return False

    def killed(self) -> None:
        self.socket.close()


class Control:
    """The control process's end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.audit = Audit()
        self.listener = Listener()
        self.workers = Workers(self.listener, self.audit, FIRST, count=COUNT)

    def peer(self) -> Peer:
        return Peer(self.path)


@contextlib.asynccontextmanager
async def listening(path: Path) -> AsyncIterator[Control]:
    made = Control(path)
    server = await asyncio.get_running_loop().create_unix_server(made.workers.worker, str(made.path))
    async with asyncio.TaskGroup() as group:
        taking = group.create_task(made.workers.take())
        yield made
        taking.cancel()
        server.close()


@pytest.fixture
async def control(tmp_path: Path) -> AsyncIterator[Control]:
    async with listening(tmp_path / "s") as made:
        yield made


def batch(number: int, *records: bytes, count: int = 1, streams: int = 0) -> Batch:
    return Batch(number, Delta((Counted("requests", ("a",), count),), (), streams), records)


async def until(found: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not found():
            await asyncio.sleep(0.001)


# ── who is there ─────────────────────────────────────────────────────────────────────────────────


async def test_one_that_comes_is_told_the_snapshot(control: Control) -> None:
    peer = control.peer()
    assert await peer.hello(1) == FIRST
    assert (control.workers.ready, control.listener.joins) == (0, 1)
    peer.say(Applied(1, ""))
    await until(lambda: control.workers.ready == 1)
    peer.killed()
    await until(lambda: control.workers.ready == 0)


async def test_one_that_judges_by_a_snapshot_of_before_is_ready(control: Control) -> None:
    """The control process began anew, at generation 1; its worker has generation 7, and goes on by it."""
    peer = control.peer()
    assert await peer.hello(1, generation=7) == FIRST
    assert control.workers.ready == 1


async def test_the_first_generation_is_applied_anew_though_its_number_is_known(control: Control) -> None:
    peer = control.peer()
    await peer.hello(1, generation=1)
    publishing = asyncio.Task(control.workers.publish(FIRST, timeout_s=60))
    await peer.told()
    assert not publishing.done()
    peer.say(Applied(1, ""))
    assert await publishing


@pytest.mark.parametrize("number", [0, COUNT + 1, (1 << 32) - 1])
async def test_a_number_that_nobody_has(control: Control, number: int, caplog: pytest.LogCaptureFixture) -> None:
    peer = control.peer()
    peer.say(Hello(number, 1, 1), batch(1, b"{}\n", streams=5))
    assert await peer.closed()
    assert (control.listener.joins, control.listener.counted, control.listener.open) == (0, 0, {})
    assert control.audit.records == []
    assert "says what cannot be read" in caplog.text


@pytest.mark.parametrize("message", [Applied(1, ""), batch(1, b"{}\n")])
async def test_nothing_is_heard_before_a_hello(control: Control, message: Applied | Batch) -> None:
    peer = control.peer()
    peer.say(message, Hello(1, 1, 1))
    assert await peer.closed()
    assert (control.workers.ready, control.listener.counted) == (0, 0)


async def test_a_second_hello_ends_it_and_leaves_nothing_behind(control: Control) -> None:
    peer = control.peer()
    await peer.hello(1)
    peer.say(Applied(1, ""), Hello(2, 1, 1))
    assert await peer.closed()
    await until(lambda: control.workers.ready == 0)
    assert await control.workers.publish(SECOND, timeout_s=60)


GARBAGE = [
    b"GET / HTTP/1.1\r\n\r\n",
    b"\0\xff\xff\xff\xff",
    b"\1\0\0\0\1x",
    framed(b"\xff\xff"),
    framed(b""),
    framed(b"x" * 100_000),
    os.urandom(100),
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
@pytest.mark.parametrize("known", [True, False])
async def test_garbage_ends_its_connection_alone(control: Control, garbage: bytes, known: bool) -> None:
    other, peer = control.peer(), control.peer()
    await other.hello(1)
    if known:
        await peer.hello(2)
        peer.say(Applied(1, ""), batch(1, count=7))
    peer.socket.send(garbage + said(batch(2, count=100)))
    assert await peer.closed()
    other.say(Applied(1, ""), batch(1))
    assert await other.told() == Taken(1)
    assert control.listener.counted == (8 if known else 1)
    assert control.workers.ready == 1


async def test_what_decisions_add_is_counted_each_time(control: Control) -> None:
    peer = control.peer()
    await peer.hello(1)
    adds = delta_bytes(Delta((Counted("passed", ("why",), 2),), (), 0))
    nothing = Delta((), (), 1)
    peer.say(Batch(1, nothing, (), (adds, adds), (0.25, 0.5)), Batch(2, nothing, (), (adds,)))
    await until(lambda: control.listener.counted == 6)
    assert control.listener.seconds == 0.75


async def test_a_batch_with_garbage_in_it_counts_nothing(control: Control) -> None:
    peer = control.peer()
    await peer.hello(1)
    adds = delta_bytes(Delta((Counted("passed", ("why",), 2),), (), 0))
    peer.say(Batch(1, Delta((Counted("passed", ("why",), 1),), (), 0), (), (adds, b"\xff\xff"), (1.0,)))
    assert await peer.closed()
    assert (control.listener.counted, control.listener.seconds) == (0, 0.0)


async def test_one_that_comes_and_says_nothing(control: Control) -> None:
    control.peer().killed()
    silent, peer = control.peer(), control.peer()
    await peer.hello(1)
    silent.killed()
    assert await control.workers.publish(SECOND, timeout_s=0) is False


# ── what they say ────────────────────────────────────────────────────────────────────────────────


async def test_batches_are_taken_in_order_when_their_records_are_on_the_disk(control: Control) -> None:
    peer = control.peer()
    await peer.hello(1)
    peer.say(batch(1), batch(2, b"{}\n", b"{}\n"), batch(3), batch(4, b"{}\n"), batch(5))
    assert await peer.told() == Taken(1)
    await until(lambda: control.listener.counted == 5)
    control.audit.write(2)
    assert await peer.told() == Taken(3)
    control.audit.write()
    assert await peer.told() == Taken(5)


async def test_what_is_dropped_is_not_waited_for_and_hurries_nothing(control: Control) -> None:
    control.audit.room = 2
    one, other = control.peer(), control.peer()
    await one.hello(1)
    await other.hello(2)
    one.say(batch(1, b"{}\n", b"{}\n"))
    await until(lambda: len(control.audit.records) == 2)
    other.say(batch(1, *[b"{}\n"] * 50))
    await until(lambda: control.listener.counted == 2)
    await asyncio.sleep(0.01)
    control.audit.write(1)
    await asyncio.sleep(0.01)
    control.audit.write(1)
    assert [await one.told(), await other.told()] == [Taken(1), Taken(1)]


async def test_open_streams_are_those_of_the_last_batch(control: Control) -> None:
    peer = control.peer()
    await peer.hello(2)
    peer.say(batch(1, streams=5), batch(2, streams=3))
    await until(lambda: control.listener.open.get("2") == 3)
    peer.killed()
    await until(lambda: control.listener.open["2"] == 0)


async def test_what_a_killed_one_said_is_heard_to_the_end(control: Control) -> None:
    """Reading pauses, and a write to somebody who is gone ends the connection first."""
    peer = control.peer()
    await peer.hello(1)
    peer.say(Applied(1, ""))
    await until(lambda: control.workers.ready)
    for number in range(1, 200):
        peer.say(batch(number, b"{}\n"))
    peer.killed()
    for _ in range(5):
        await control.workers.publish(SECOND, timeout_s=0)
    await until(lambda: not control.workers.ready)
    assert control.listener.counted == len(control.audit.records) == 199


async def test_a_batch_that_was_cut_short_is_none(control: Control) -> None:
    peer = control.peer()
    await peer.hello(1, generation=1)
    peer.socket.send(said(batch(1)) + said(batch(2))[:-1])
    peer.killed()
    await until(lambda: not control.workers.ready)
    assert control.listener.counted == 1


async def test_two_of_one_number_and_the_living_ones_streams(control: Control) -> None:
    """The one that is about to end is heard out, and its batches are taken."""
    old, new = control.peer(), control.peer()
    await old.hello(1, generation=1)
    old.say(batch(1, streams=9))
    await until(lambda: control.listener.open.get("1") == 9)
    await old.told()
    await new.hello(1)
    assert control.listener.open["1"] == 0
    new.say(Applied(1, ""), batch(1, streams=2))
    await new.told()
    old.say(batch(2, streams=8))
    assert await old.told() == Taken(2)
    assert (control.listener.counted, control.listener.open["1"], control.workers.ready) == (3, 2, 1)
    old.killed()
    new.say(batch(2, streams=2))
    assert await new.told() == Taken(2)
    assert (control.listener.open["1"], control.workers.ready) == (2, 1)


async def test_two_of_one_number_and_the_later_one_goes_first(control: Control) -> None:
    old, new = control.peer(), control.peer()
    await old.hello(1, generation=1)
    await new.hello(1, generation=1)
    new.killed()
    old.say(batch(1, streams=4))
    await until(lambda: control.listener.open["1"] == 4)
    assert control.workers.ready == 1
    assert await old.told() == Taken(1)


async def test_much_at_once_is_read_on(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for room is not kept waiting; else reading pauses."""
    monkeypatch.setattr(workers, "READ_EVERY_S", 3600)
    much = b"x" * workers.MUCH_BYTES + b"\n"
    peer = control.peer()
    peer.say(Hello(1, 1, 1), batch(1, much))
    await until(lambda: control.listener.counted == 1)
    peer.say(batch(2, much))
    await until(lambda: control.listener.counted == 2)
    peer.say(batch(3))
    await until(lambda: control.listener.counted == 3)
    peer.say(batch(4))
    await asyncio.sleep(0.02)
    assert control.listener.counted == 3


# ── what they are told ───────────────────────────────────────────────────────────────────────────


async def answering(peer: Peer, worker: int, error: str = "") -> Awaitable[None]:
    """A worker that puts in force what it is told, or says why not."""
    await peer.hello(worker)
    peer.say(Applied(1, ""))

    async def answer() -> None:
        told = await peer.told()
        assert isinstance(told, SnapshotTold)
        peer.say(Applied(told.generation, error))

    return asyncio.Task(answer())


async def test_published_when_all_have_it_in_force(control: Control) -> None:
    peers = [control.peer() for _ in range(COUNT)]
    answers = [await answering(peer, number) for number, peer in enumerate(peers, 1)]
    await until(lambda: control.workers.ready == COUNT)
    assert await control.workers.publish(SECOND, timeout_s=60) is True
    await asyncio.gather(*answers)


async def test_one_that_cannot_build_it_keeps_its_own_and_is_not_waited_for(
    control: Control, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = control.peer(), control.peer()
    answers = [await answering(one, 1), await answering(other, 2, "ValueError: of another version")]
    await until(lambda: control.workers.ready == 2)
    with caplog.at_level(logging.ERROR):
        assert await control.workers.publish(SECOND, timeout_s=60) is False
    assert "worker 2 keeps generation 1: ValueError: of another version" in caplog.text
    assert control.workers.ready == 2
    await asyncio.gather(*answers)


async def test_one_that_never_answers_is_waited_for_only_so_long(control: Control) -> None:
    peer = control.peer()
    await peer.hello(1, generation=1)
    assert await control.workers.publish(SECOND, timeout_s=0.01) is False


async def test_one_that_is_killed_meanwhile_is_not_waited_for(control: Control) -> None:
    peer = control.peer()
    await peer.hello(1, generation=1)
    publishing = asyncio.Task(control.workers.publish(SECOND, timeout_s=60))
    await asyncio.sleep(0)
    peer.killed()
    assert await publishing is True


async def test_one_that_comes_meanwhile_is_told_the_latest(control: Control) -> None:
    assert await control.workers.publish(SECOND, timeout_s=60) is True  # nobody is here
    assert await control.peer().hello(1) == SECOND


async def test_one_that_never_reads_is_let_go(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "MAX_MESSAGE_BYTES", 1 << 20)
    peer = control.peer()
    await peer.hello(1, generation=1)
    large = SnapshotTold(2, b"x" * (1 << 20), b"")
    for _ in range(3):
        assert control.workers.ready
        await control.workers.publish(large, timeout_s=0)
    await until(lambda: not control.workers.ready)
    assert await control.workers.publish(large, timeout_s=60) is True


# ── and over uvloop, whose transports differ ─────────────────────────────────────────────────────

Test = Callable[[Control], Awaitable[None]]


def alone(test: object) -> bool:
    """Whether it takes a control process and nothing else."""
    return inspect.iscoroutinefunction(test) and list(inspect.signature(test).parameters) == ["control"]


@pytest.mark.parametrize(
    "test", [each for each in tuple(globals().values()) if alone(each)], ids=lambda test: test.__name__
)
def test_over_uvloop(tmp_path: Path, test: Test) -> None:
    async def run() -> None:
        async with listening(tmp_path / "s") as made:
            await test(made)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())

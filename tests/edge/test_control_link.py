"""A worker's end: what it records leaves before its answers do, and is kept until it is safe elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
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
    read_delta,
    read_said,
    told,
)
from extproc.edge import control_link
from extproc.edge.control_link import ControlLink
from extproc.model.commands import RecordDecision, RecordPass
from extproc.recorded import Recorded
from tests.test_recorded import decision

FIRST, SECOND = SnapshotTold(1, b"one", b""), SnapshotTold(2, b"two", b"")
DECISION = decision().decision
TARGET = decision().target


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_link, "RETRY_S", 0.001)
    monkeypatch.setattr(control_link, "SAY_EVERY_S", 0.001)


class Spill:
    """What a worker writes by itself; `fails` loses it."""

    def __init__(self) -> None:
        self.open: list[bytes] = []
        self.closed: list[bytes] = []
        self.fails = False

    def append(self, lines: Sequence[bytes]) -> int:
        if self.fails:
            return len(lines)
        self.open += lines
        return 0

    def close(self) -> None:
        self.closed += self.open
        self.open.clear()


class Control:
    """The control process's end: hears when it is asked to, takes and tells what a test wants."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.batches: list[Batch] = []
        self.counted = Recorded()
        self.link = ControlLink(path, 3)
        self.spill = Spill()
        self.link.spill_to(self.spill)
        self._listening: socket.socket | None = None
        self._peer: socket.socket | None = None
        self._messages = Messages(MAX_MESSAGE_BYTES)
        self._said: list[Hello | Applied | Batch] = []

    def start(self) -> None:
        self.path.unlink(missing_ok=True)
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(self.path))
        self._listening.listen()
        self._listening.setblocking(False)

    def killed(self) -> None:
        for each in (self._listening, self._peer):
            if each is not None:
                each.close()
        self._listening = self._peer = None
        self._messages = Messages(MAX_MESSAGE_BYTES)
        self._said.clear()

    async def joined(self) -> Hello:
        assert self._listening is not None
        self._peer, _ = await asyncio.get_running_loop().sock_accept(self._listening)
        hello = await self.hear()
        assert isinstance(hello, Hello)
        return hello

    async def hear(self) -> Hello | Applied | Batch:
        """The next message; batches are counted."""
        assert self._peer is not None
        while not self._said:
            data = await asyncio.get_running_loop().sock_recv(self._peer, 1 << 16)
            if not data:
                raise EOFError
            self._said += map(read_said, self._messages.feed(data))
        message = self._said.pop(0)
        if isinstance(message, Batch):
            self.batches.append(message)
            count(self.counted, message)
        return message

    async def hear_until(self, found: Callable[[], object]) -> None:
        async with asyncio.timeout(10):
            while not found():
                await self.hear()

    def now(self) -> Batch | None:
        """A batch that is in the socket already."""
        assert self._peer is not None
        with contextlib.suppress(BlockingIOError):
            self._said += map(read_said, self._messages.feed(self._peer.recv(1 << 16)))
        found = self._said.pop(0) if self._said else None
        assert found is None or isinstance(found, Batch)
        return found

    async def tell(self, *messages: SnapshotTold | Taken) -> None:
        assert self._peer is not None
        await asyncio.get_running_loop().sock_sendall(self._peer, b"".join(map(told, messages)))

    async def hear_all(self) -> None:
        """Also what is about to be said."""
        await asyncio.sleep(0.001)
        await self.hear_until(lambda: self.batches and self.batches[-1].number == self.link._number)

    async def take(self) -> None:
        """All there is, and so that the link knows."""
        await self.hear_all()
        await self.tell(Taken(self.link._number))
        await until(lambda: not self.link._kept)

    @property
    def audit(self) -> list[bytes]:
        return [line for each in self.batches for line in each.audit]


@contextlib.asynccontextmanager
async def linked(path: Path) -> AsyncIterator[Control]:
    made = Control(path)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(made.link.run())
        try:
            yield made
        finally:
            running.cancel()
            made.killed()


@pytest.fixture
async def control(tmp_path: Path) -> AsyncIterator[Control]:
    async with linked(tmp_path / "s") as made:
        yield made


async def until(found: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not found():
            await asyncio.sleep(0.001)


def line(number: int) -> bytes:
    return b'{"n": %d}\n' % number


def judge(link: ControlLink, number: int, size: int = 0) -> None:
    """One request, from the opening of its stream to its end."""
    link.stream_opened()
    link.decided(RecordDecision(TARGET, DECISION, (line(number), *[b"x" * size + b"\n"] * (size > 0))))
    link.settle()
    link.stream_ended("completed")
    link.decision_seconds(0.25)


def count(recorded: Recorded, batch: Batch) -> None:
    recorded.merge(batch.delta)
    for each in batch.again:
        recorded.merge_again(read_delta(each))
    for seconds in batch.seconds:
        recorded.decision_seconds(seconds)


def requests(recorded: Recorded) -> int:
    recorded.spread()
    return sum(count for _, count in recorded.counts["requests"].items())


def left(control: Control) -> int:
    """Requests that are counted in the worker and nowhere else."""
    return requests(control.link._recorded)


# ── with a control process ───────────────────────────────────────────────────────────────────────


async def test_it_says_who_it_is_and_follows(control: Control) -> None:
    control.start()
    hello = await control.joined()
    assert (hello.worker, hello.generation) == (3, 0)
    await control.tell(FIRST)
    assert await control.link.snapshot() == FIRST
    control.link.applied(1)
    await control.hear_until(lambda: control.batches)
    assert await control.hear() == Applied(1, "")
    await control.tell(SECOND)
    assert await control.link.snapshot() == SECOND
    control.link.applied(2, "no")
    assert await control.hear() == Applied(2, "no")
    control.killed()
    control.start()
    assert (await control.joined()).generation == 1


async def test_a_snapshot_that_was_followed_by_another_one_is_not_built(control: Control) -> None:
    control.start()
    await control.joined()
    await control.tell(FIRST, SECOND)
    await until(lambda: control.link._told == SECOND)
    assert await control.link.snapshot() == SECOND


async def test_what_is_recorded_is_in_the_socket_before_its_answer(control: Control) -> None:
    control.start()
    await control.joined()
    await control.hear_until(lambda: control.batches)
    control.link.stream_opened()
    control.link.decided(RecordDecision(TARGET, DECISION, (line(1), line(2))))
    control.link.settle()
    found = control.now()
    assert found is not None
    assert (found.audit, found.delta.open) == ((line(1), line(2)), 1)


async def test_nothing_new_nothing_said(control: Control) -> None:
    control.start()
    await control.joined()
    await control.hear_until(lambda: control.batches)
    for _ in range(5):
        control.link.settle()
    assert control.now() is None


async def test_the_end_of_a_stream_is_said_soon(control: Control) -> None:
    control.start()
    await control.joined()
    judge(control.link, 1)
    control.link.passed(RecordPass("unknown_path"))
    await control.hear_until(lambda: len(control.batches) == 3)
    assert requests(control.counted) == 1
    assert dict(control.counted.counts["streams"].items()) == {("completed",): 1}
    assert dict(control.counted.counts["passed"].items()) == {("unknown_path",): 1}
    assert dict(control.counted.buckets["decision"].items())[()].total == 0.25
    assert [each.number for each in control.batches] == [1, 2, 3]
    assert control.batches[-1].delta.open == 0


async def test_the_end_of_a_stream_goes_with_the_next_decision(control: Control) -> None:
    control.start()
    await control.joined()
    judge(control.link, 1)
    judge(control.link, 2)
    await control.hear_until(lambda: requests(control.counted) == 2)
    assert [len(each.again) for each in control.batches] == [0, 1, 2]
    assert control.batches[1].again[0] in control.batches[2].again, "equal decisions are equal bytes"
    assert control.batches[2].seconds == (0.25,)
    await control.hear_all()
    assert dict(control.counted.counts["streams"].items()) == {("completed",): 2}


async def test_many_different_decisions_are_known_only_so_long(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_link, "MAX_KNOWN", 3)
    control.start()
    await control.joined()
    for _ in range(20):
        control.link.decided(decision())
        control.link.settle()
    assert len(control.link._known) <= 3
    await control.hear_all()
    assert requests(control.counted) == 20


async def test_streams_that_only_are_open_are_said_too(control: Control) -> None:
    control.start()
    await control.joined()
    await control.hear_until(lambda: control.batches)
    control.link.stream_opened()
    await control.hear_until(lambda: len(control.batches) == 2)
    assert control.batches[-1].delta.open == 1


async def test_more_than_the_socket_takes_arrives_in_order(control: Control) -> None:
    control.start()
    await control.joined()
    for number in range(50):
        judge(control.link, number, 20_000)
    await control.hear_until(lambda: requests(control.counted) == 50)
    assert [each for each in control.audit if each[:1] == b"{"] == [line(number) for number in range(50)]


# ── without one ──────────────────────────────────────────────────────────────────────────────────


async def test_what_was_not_taken_is_given_back(control: Control) -> None:
    control.start()
    await control.joined()
    judge(control.link, 1)
    await control.hear_until(lambda: requests(control.counted) == 1)
    await control.take()
    judge(control.link, 2)
    judge(control.link, 3)
    await control.hear_all()
    control.killed()
    await until(lambda: control.link._transport is None)
    judge(control.link, 4)
    assert control.spill.open == [line(2), line(3), line(4)]
    assert left(control) == 3
    assert control.spill.closed == []
    control.counted = Recorded()
    control.start()
    await control.joined()
    assert control.spill.closed == [line(2), line(3), line(4)]  # before it says hello
    await control.hear_until(lambda: requests(control.counted) == 3)
    assert dict(control.counted.counts["streams"].items()) == {("completed",): 3}
    assert dict(control.counted.buckets["decision"].items())[()].total == 0.75
    assert control.audit == [line(1), line(2), line(3)]


async def test_a_control_process_that_comes_late(control: Control) -> None:
    judge(control.link, 1)
    assert control.spill.open == [line(1)]
    control.start()
    await control.joined()
    judge(control.link, 2)
    await control.hear_until(lambda: requests(control.counted) == 2)
    assert (control.audit, control.spill.closed) == ([line(2)], [line(1)])


async def test_killed_again_and_again_everything_is_counted_once(control: Control) -> None:
    """By the last control process; what was taken before that is with the ones before."""
    taken = number = 0
    for _ in range(5):
        control.counted = Recorded()
        control.start()
        await control.joined()
        for _ in range(10):
            judge(control.link, number)
            number += 1
        await control.take()
        assert requests(control.counted) == number - taken
        taken = number
        judge(control.link, number)
        number += 1
        await asyncio.sleep(0)
        control.killed()
        await until(lambda: control.link._transport is None)
    assert left(control) == number - taken


async def test_records_that_cannot_be_put_aside_are_counted(control: Control) -> None:
    control.spill.fails = True
    judge(control.link, 1)
    judge(control.link, 2)
    control.start()
    await control.joined()
    await control.hear_until(lambda: requests(control.counted) == 2)
    assert dict(control.counted.counts["dropped"].items()) == {(): 2}


async def test_one_that_says_garbage_is_left_and_found_again(
    control: Control, caplog: pytest.LogCaptureFixture
) -> None:
    for garbage in (b"HTTP/1.1 400\r\n\r\n", framed(b""), framed(b"\xff\xff"), b"\0\xff\xff\xff\xff"):
        control.start()
        await control.joined()
        assert control._peer is not None
        control._peer.send(garbage)
        await until(lambda: control.link._transport is None)
        control.killed()
    assert caplog.text.count("says what cannot be read") == 4


# ── with one that does not keep up ───────────────────────────────────────────────────────────────


async def test_one_that_takes_nothing_holds_no_memory(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts wait here then, and records beside the audit file, until half of what was sent is taken."""
    monkeypatch.setattr(control_link, "MAX_KEPT_BYTES", 10_000)
    control.start()
    await control.joined()
    for number in range(200):
        judge(control.link, number, 1000)
    assert control.link._kept_bytes < 12_000
    assert len(control.spill.open) > 300
    await control.hear_until(lambda: len(control.batches) == len(control.link._kept))
    sent = requests(control.counted)
    assert sent + left(control) == 200
    await control.tell(Taken(2))
    await until(lambda: control.link._kept[0][0].number == 3)
    assert control.spill.closed == []
    await control.tell(Taken(control.batches[-1].number))
    await control.hear_until(lambda: requests(control.counted) == 200)
    judge(control.link, 200)
    await control.hear_until(lambda: requests(control.counted) == 201)
    assert len(control.audit) + len(control.spill.closed) == 2 * 200 + 1
    assert control.spill.open == []


async def test_one_that_does_not_read_holds_no_memory(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_link, "MAX_KEPT_BYTES", 2 << 20)
    control.start()
    await control.joined()
    for number in range(300):
        judge(control.link, number, 20_000)
    assert control.link._kept_bytes < 3 << 20
    assert control.link._transport is not None
    assert control.link._transport.get_write_buffer_size() < 3 << 20
    control.killed()
    await until(lambda: control.link._transport is None)
    assert sorted(each for each in control.spill.open if each[:1] == b"{") == sorted(map(line, range(300)))
    assert left(control) == 300


async def test_many_batches_without_a_record_are_bounded_too(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_link, "MAX_KEPT_BYTES", 10_000)
    control.start()
    await control.joined()
    for _ in range(2000):
        control.link.stream_opened()
        control.link.stream_ended("completed")
        control.link.settle()
    assert len(control.link._kept) < 500


# ── at the end ───────────────────────────────────────────────────────────────────────────────────


async def test_it_waits_for_what_it_said_to_be_taken(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_link, "TAKEN_S", 3600)
    control.start()
    await control.joined()
    judge(control.link, 1)
    closing = asyncio.Task(control.link.close())
    await control.hear_all()
    assert not closing.done()
    await control.take()
    await closing
    assert control.spill.open == control.spill.closed == []


async def test_but_not_for_ever(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_link, "TAKEN_S", 0.01)
    control.start()
    await control.joined()
    judge(control.link, 1)
    await control.link.close()
    assert control.spill.closed == [line(1)]


async def test_without_anybody_it_ends_at_once(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_link, "TAKEN_S", 3600)
    judge(control.link, 1)
    await control.link.close()
    assert control.spill.closed == [line(1)]


async def test_a_path_that_is_none_is_tried_again(tmp_path: Path) -> None:
    async with linked(tmp_path / ("x" * 200)) as made:
        judge(made.link, 1)
        await asyncio.sleep(0.01)
        assert made.spill.open == [line(1)]


# ── and over uvloop, whose transports differ ─────────────────────────────────────────────────────

Test = Callable[[Control], Awaitable[None]]


def alone(test: object) -> bool:
    """Whether it takes a control process and nothing else."""
    return inspect.iscoroutinefunction(test) and list(inspect.signature(test).parameters) == ["control"]


@pytest.mark.parametrize(
    "test", [each for each in tuple(globals().values()) if alone(each)], ids=lambda test: test.__name__
)
def test_over_uvloop(tmp_path: Path, test: Test, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with linked(tmp_path / "s") as made:
            await test(made)

    with caplog.at_level(logging.CRITICAL), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())

"""Usage as the observer reads it through a real Envoy, and that observing costs a client nothing."""

from __future__ import annotations

import asyncio
import gzip
import itertools
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.envoy_config.stub_sidecar import HEADERS, Seen, StubSidecar, carry_on, change, reject
from tests.usage.observing import END, EVENTS, HEAD, Answer, Client, Watched, chunk, engine, header
from tests.usage.streams import CHAT, STREAMS, recorded, told

MIB = 1 << 20
CONNECTIONS = 48
BEHIND = 200

EVENT = b'data: {"model":"m","choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % (b"y" * 900)
LAST = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: {"usage":{"prompt_tokens":1,"completion_tokens":7}}\n\n'


@pytest.fixture
def watched() -> Iterator[Watched]:
    with Watched() as running:
        yield running


async def test_streams_cut_at_every_byte_tell_the_same(watched: Watched) -> None:
    streams = {name: recorded(name) for name in STREAMS}
    jobs = iter([(name, at) for name, stream in streams.items() for at in range(1, len(stream))])
    count = sum(len(stream) - 1 for stream in streams.values())

    async def cut(head: str, writer: asyncio.StreamWriter) -> None:
        stream, at = streams[header(head, "x-llm-tenant")], int(header(head, "x-cut"))
        writer.write(EVENTS + chunk(stream[:at]))
        await arrived[header(head, "x-llm-tenant"), at].wait()
        writer.write(chunk(stream[at:]) + END)

    arrived: dict[tuple[str, int], asyncio.Event] = {}
    """Set when the client has the first part: Envoy has then read it apart from the second."""
    asked = itertools.count(1)
    allowed = 0

    async def keep_up() -> None:
        """Answers faster than the observer can read would be dropped with their streams."""
        nonlocal allowed
        mine = next(asked)
        while mine > allowed:
            allowed = watched.observer.count() + BEHIND
            if mine > allowed:
                await asyncio.sleep(0.02)

    async def ask_on() -> None:
        client = await Client.connect(watched.port)
        for name, at in jobs:
            await keep_up()
            here = arrived[name, at] = asyncio.Event()
            await client.send(STREAMS[name][0], x_llm_tenant=name, x_cut=str(at))
            assert await client.answer(lambda _, here=here: here.set()) == streams[name]
            del arrived[name, at]
        await client.close()

    async with engine(watched.engine_port, cut):
        await asyncio.gather(*(ask_on() for _ in range(CONNECTIONS)))
    watched.observer.await_verdicts(count)
    samples = Counter((sample.tenant, told(sample)) for sample in watched.observer.samples())
    assert samples == {(name, STREAMS[name][1]): len(stream) - 1 for name, stream in streams.items()}
    # Headers twice, both parts, the end.
    assert watched.stat("http.l.ext_proc.usage.stream_msgs_sent") == 5 * count


async def test_the_decision_s_headers_come_with_the_sample(watched: Watched) -> None:
    """The decision writes them while it answers the body; the observing filter behind it sees them."""
    words = {"model": "named", "scenario": "payment", "tier": "strict", "tenant": "shop", "pool": "p"}
    headers = {f"x-llm-{name}": value for name, value in words.items()}

    def script(phase: int, _: Seen) -> bytes:
        return carry_on(phase) if phase == HEADERS else change(phase, headers)

    decision = StubSidecar(f"{watched.folder}/decision.sock", script)
    try:
        async with engine(watched.engine_port, all_at_once(EVENTS, EVENT + LAST)):
            await (await Client.connect(watched.port)).ask(CHAT, x_judge="1")
        watched.observer.await_verdicts(1)
        (sample,) = watched.observer.samples()
        assert {name: getattr(sample, name) for name in words} == words
        assert told(sample) == ("named", 1, 7, "stop", False)
    finally:
        decision.stop()


async def test_a_request_the_decision_rejects_has_no_sample(watched: Watched) -> None:
    """Envoy shows the filter the answer it makes itself, and nothing of the request."""

    def script(phase: int, _: Seen) -> bytes:
        return carry_on(phase) if phase == HEADERS else reject(400, b"{}", {"content-type": "application/json"})

    decision = StubSidecar(f"{watched.folder}/decision.sock", script)
    try:
        client = await Client.connect(watched.port)
        await client.send(CHAT, x_judge="1")
        assert (await client.reader.readline()).startswith(b"HTTP/1.1 400")
        async with engine(watched.engine_port, all_at_once(EVENTS, EVENT + LAST)):
            await (await Client.connect(watched.port)).ask(CHAT)
        assert sorted(watched.observer.await_verdicts(2)) == [("read", ""), ("skipped", "no_request")]
        assert len(watched.observer.samples()) == 1
    finally:
        decision.stop()


@pytest.mark.parametrize(
    ("head", "body", "verdict"),
    [
        (EVENTS, EVENT + LAST, ("read", "")),
        (HEAD % b"application/json", b'{"usage":{"prompt_tokens":1,"completion_tokens":7}}', ("read", "")),
        (HEAD % b"application/json", b"{}" + b" " * MIB, ("skipped", "too_large")),
        (
            HEAD % b"text/event-stream\r\ncontent-encoding: gzip",
            gzip.compress(EVENT * 999, mtime=0),
            ("skipped", "encoded"),
        ),
        (HEAD % b"image/png", b"x" * MIB, ("skipped", "content_type")),
    ],
)
async def test_every_answer_arrives_whole_read_or_not(
    watched: Watched, head: bytes, body: bytes, verdict: tuple[str, str]
) -> None:
    async with engine(watched.engine_port, all_at_once(head, body)):
        assert await (await Client.connect(watched.port)).ask(CHAT) == body
    assert watched.observer.await_verdicts(1) == [verdict]


@pytest.mark.parametrize("path", ["/v1/unobserved", "/v1/switched-off"])
async def test_a_route_without_the_filter_is_not_observed(watched: Watched, path: str) -> None:
    async with engine(watched.engine_port, all_at_once(EVENTS, EVENT + LAST)):
        await (await Client.connect(watched.port)).ask(path)
    assert watched.stat("http.l.ext_proc.usage.streams_started") == 0


async def test_a_client_that_leaves_is_an_abort(watched: Watched) -> None:
    gone = asyncio.Event()

    async def half(_: str, writer: asyncio.StreamWriter) -> None:
        writer.write(EVENTS + chunk(EVENT * 3))
        await gone.wait()

    async with engine(watched.engine_port, half):
        client = await Client.connect(watched.port)
        await client.send(CHAT)
        await client.reader.readuntil(EVENT * 3)
        await client.close()
        assert watched.observer.await_verdicts(1) == [("aborted", "")]
        gone.set()
    assert [told(sample) for sample in watched.observer.samples()] == [("m", None, 3, "", True)]


async def test_an_engine_that_breaks_off_is_an_abort(watched: Watched) -> None:
    async def half(_: str, writer: asyncio.StreamWriter) -> None:
        writer.write(EVENTS + chunk(EVENT * 2))
        await writer.drain()
        writer.close()

    async with engine(watched.engine_port, half):
        client = await Client.connect(watched.port)
        await client.send(CHAT)
        await client.reader.read()
    assert watched.observer.await_verdicts(1) == [("aborted", "")]
    assert watched.observer.samples()[0].output_tokens == 2


async def test_an_observer_that_sleeps_delays_nobody() -> None:
    """A hundred events, each sent when the client has the one before, and then more than any buffer takes.

    The observer sleeps 5 s before each: a client that waited for it would wait ten minutes.
    """
    big = EVENT * (16 * MIB // len(EVENT))
    arrived: asyncio.Queue[int] = asyncio.Queue()

    async def in_step(_: str, writer: asyncio.StreamWriter) -> None:
        writer.write(EVENTS)
        for number in range(1, 101):
            writer.write(chunk(EVENT))
            while await arrived.get() < number * len(EVENT):
                pass
        writer.write(chunk(big) + END)

    with Watched(delay_s=5) as watched:
        async with asyncio.timeout(60), engine(watched.engine_port, in_step):
            client = await Client.connect(watched.port)
            await client.send(CHAT)
            assert len(await client.answer(arrived.put_nowait)) == 100 * len(EVENT) + len(big)
        # It has not read to the end: it still sleeps, or Envoy has waited its second for it.
        assert watched.observer.verdicts() in ([], [("aborted", "")])


async def test_an_observer_that_dies_costs_no_answer(watched: Watched) -> None:
    killed = asyncio.Event()

    async def around_its_death(_: str, writer: asyncio.StreamWriter) -> None:
        writer.write(EVENTS + chunk(EVENT))
        await killed.wait()
        writer.write(chunk(LAST) + END)

    async with engine(watched.engine_port, around_its_death):
        client = await Client.connect(watched.port)
        await client.send(CHAT)
        answer = asyncio.ensure_future(client.answer(lambda _: watched.observer.kill() or killed.set()))
        assert await answer == EVENT + LAST
        assert await client.ask(CHAT) == EVENT + LAST


STREAMS_AT_ONCE = 200
SIZE = 2 * MIB
BOUND = 64 * MIB
"""For each of 200 streams 65 KiB held, 16 KiB read ahead, two messages of 32 KiB in gRPC's hands; twice that."""

SHAPES = (
    (EVENTS, EVENT * (SIZE // len(EVENT)), LAST),
    (EVENTS, b"data: " + b"x" * SIZE, b"\n\n" + LAST),
    (HEAD % b"application/json", b'{"x":"' + b"x" * SIZE, b'","usage":{"prompt_tokens":1,"completion_tokens":7}}'),
)


async def test_200_streams_of_2_mb_leave_memory_bounded(watched: Watched) -> None:
    """All of them are open, and all their bytes with the observer, before the first one ends."""
    taken = asyncio.Event()
    shapes = itertools.cycle(SHAPES)

    async def long(_: str, writer: asyncio.StreamWriter) -> None:
        head, body, last = next(shapes)
        writer.write(head)
        for at in range(0, len(body), 1 << 16):
            writer.write(chunk(body[at : at + (1 << 16)]))
            await writer.drain()
        await taken.wait()
        writer.write(chunk(last) + END)

    async def ask() -> int:
        client = await Client.connect(watched.port)
        return len(await client.ask(CHAT))

    before = watched.observer.peak_bytes()
    async with engine(watched.engine_port, long):
        asking = asyncio.gather(*(ask() for _ in range(STREAMS_AT_ONCE)))
        async with asyncio.timeout(60):
            while watched.stat("cluster.control.upstream_cx_tx_bytes_total") < STREAMS_AT_ONCE * (
                SIZE - len(EVENT)
            ):
                await asyncio.sleep(0.1)
            taken.set()
            assert min(await asking) > SIZE - len(EVENT)
    assert Counter(watched.observer.await_verdicts(STREAMS_AT_ONCE)) == {("read", ""): STREAMS_AT_ONCE}
    assert watched.observer.peak_bytes() - before < BOUND


def all_at_once(head: bytes, body: bytes) -> Answer:
    async def answer(_: str, writer: asyncio.StreamWriter) -> None:
        writer.write(head + chunk(body) + END)

    return answer

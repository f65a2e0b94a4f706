"""The discovery service over a real socket: how streams begin and end, who is told what, and what is noted."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.any_pb2 import Any as Packed

from extproc.codec import discovery as codec
from extproc.codec.wire import discovery_pb2 as pb
from extproc.codec.xds import encode
from extproc.edge import grpc_server
from extproc.edge.xds import AdsServicer, handler
from extproc.loops.board import Board
from extproc.model.xds import NOTHING, Encoded, Kind, Resources

GIVEN_UP = (grpc.StatusCode.CANCELLED,)
"""What the client may see instead, where gRPC has not let go yet of a read the server gave up."""


class Notes:
    """An observer that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.open = 0
        self.seconds: list[float] = []

    def stream_opened(self) -> None:
        self.open += 1

    def stream_ended(self) -> None:
        self.open -= 1

    def pushed(self, kind: Kind) -> None:
        self.told.append(f"pushed {kind.name}")

    def acked(self, kind: Kind, seconds: float) -> None:
        self.told.append(f"acked {kind.name}")
        self.seconds.append(seconds)

    def nacked(self, kind: Kind, node: str, reason: str) -> None:
        self.told.append(f"nacked {kind.name} by {node}: {reason}")


def world(generation: int = 1, number: int = 1) -> Encoded:
    layer = {"name": "layer", "layer": {"n": number}}
    return encode(Resources(generation, {Kind.RTDS: {"layer": layer}}))


class World:
    """A server that everybody sees the same of, unless `view` is replaced."""

    def __init__(self, socket: Path, first: Encoded) -> None:
        self.notes = Notes()
        self.board: Board[Encoded] = Board(first)
        self.view: Callable[[str, str], Encoded | None] = lambda _, __: self.board.current
        self.now = 100.0
        self.servicer = AdsServicer(view=self.see, board=self.board, observer=self.notes, clock=lambda: self.now)
        self.address = f"unix:{socket}"

    def see(self, node_id: str, node_cluster: str) -> Encoded | None:
        return self.view(node_id, node_cluster)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        server = grpc_server.server(1 << 20)
        server.add_generic_rpc_handlers((handler(self.servicer),))
        grpc_server.bind(server, self.address)
        await server.start()
        async with grpc.aio.insecure_channel(self.address) as channel:
            self.method = channel.stream_stream(f"/{codec.METHOD_SERVICE}/{codec.METHOD_NAME}")
            yield
        await server.stop(0)

    def stream(self) -> Stream:
        return Stream(self.method())

    async def until(self, found: Callable[[], object]) -> None:
        async with asyncio.timeout(5):
            while not found():
                await asyncio.sleep(0.005)


class Stream:
    """The client's end."""

    def __init__(self, call: Any) -> None:
        self.call = call

    async def ask(
        self, kind: str = Kind.RTDS, *names: str, node: str = "n", nonce: str = "", error: str = ""
    ) -> None:
        request = pb.DiscoveryRequest(type_url=kind, resource_names=names, response_nonce=nonce)
        request.node.id, request.node.cluster = node, "c"
        if error:
            request.error_detail.message = error
        await self.call.write(request.SerializeToString())

    async def answer(self) -> pb.DiscoveryResponse:
        return pb.DiscoveryResponse.FromString(await asyncio.wait_for(self.call.read(), 5))

    async def silent(self) -> bool:
        """Nothing comes for a moment."""
        reading = asyncio.ensure_future(self.call.read())
        done, _ = await asyncio.wait([reading], timeout=0.1)
        reading.cancel()
        return not done


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[World]:
    world_ = World(tmp_path / "s", world())
    async with world_.serving():
        yield world_


async def test_a_request_is_answered_and_an_answer_noted(served: World) -> None:
    stream = served.stream()
    await stream.ask(Kind.RTDS, "layer")
    response = await stream.answer()
    (resource,) = response.resources
    assert isinstance(resource, Packed)
    assert (response.type_url, resource.type_url) == (Kind.RTDS, Kind.RTDS)
    assert resource.value == served.board.current.of(Kind.RTDS).by_name["layer"].body
    assert response.version_info == served.board.current.of(Kind.RTDS).version
    served.now += 0.25
    await stream.ask(Kind.RTDS, "layer", nonce=response.nonce)
    await served.until(lambda: served.notes.seconds)
    assert served.notes.told == ["pushed RTDS", "acked RTDS"]
    assert served.notes.seconds == [0.25]
    assert served.notes.open == 1


async def test_what_is_published_is_pushed(served: World) -> None:
    stream = served.stream()
    await stream.ask(Kind.RTDS, "layer")
    first = await stream.answer()
    await stream.ask(Kind.RTDS, "layer", nonce=first.nonce)
    await served.until(lambda: served.notes.seconds)
    served.now = 200.0
    served.board.publish(world(2, number=2))
    second = await stream.answer()
    assert second.version_info != first.version_info
    served.now = 200.5
    await stream.ask(Kind.RTDS, "layer", nonce=second.nonce)
    await served.until(lambda: len(served.notes.seconds) == 2)
    assert served.notes.seconds[1] == 0.5


async def test_the_same_again_is_not_pushed(served: World) -> None:
    stream = served.stream()
    await stream.ask(Kind.RTDS, "layer")
    first = await stream.answer()
    await stream.ask(Kind.RTDS, "layer", nonce=first.nonce)
    served.board.publish(world(2))
    assert await stream.silent()


async def test_nothing_is_said_before_there_is_something(tmp_path: Path) -> None:
    served = World(tmp_path / "s", NOTHING)
    async with served.serving():
        stream = served.stream()
        await stream.ask(Kind.RTDS, "layer")
        reading = asyncio.create_task(stream.answer())
        await asyncio.sleep(0.05)
        assert not reading.done()
        served.board.publish(world())
        assert (await reading).type_url == Kind.RTDS


async def test_a_slow_envoy_gets_the_latest_only(served: World) -> None:
    stream = served.stream()
    await stream.ask(Kind.RTDS, "layer")
    first = await stream.answer()
    for generation in range(2, 10):
        served.board.publish(world(generation, number=generation))
        await asyncio.sleep(0)
    await stream.ask(Kind.RTDS, "layer", nonce=first.nonce)
    assert (await stream.answer()).version_info == world(9, number=9).of(Kind.RTDS).version
    await served.until(lambda: served.notes.told == ["pushed RTDS", "acked RTDS", "pushed RTDS"])


async def test_a_refusal_is_told_once_in_one_line_with_envoys_reason(
    served: World, caplog: pytest.LogCaptureFixture
) -> None:
    stream = served.stream()
    await stream.ask(Kind.RTDS, "layer", node="envoy-7")
    first = await stream.answer()
    await stream.ask(Kind.RTDS, "layer", nonce=first.nonce, error="no such\nfield\x00")
    await served.until(lambda: len(served.notes.told) == 2)
    assert served.notes.told[1] == "nacked RTDS by envoy-7 (c): no such field"
    served.board.publish(world(2))
    assert await stream.silent()
    errors = [
        record.getMessage()
        for record in caplog.records
        if record.name == "extproc.xds" and record.levelno >= logging.ERROR
    ]
    assert errors == ["Envoy envoy-7 (c) refused RTDS layer: no such field"]


async def test_of_a_long_reason_both_ends_are_told(served: World) -> None:
    stream = served.stream()
    await stream.ask(Kind.RTDS, "layer")
    first = await stream.answer()
    await stream.ask(Kind.RTDS, "layer", nonce=first.nonce, error=f"resource {'x' * 100_000} the reason")
    await served.until(lambda: len(served.notes.told) == 2)
    told = served.notes.told[1]
    assert told.startswith("nacked RTDS by n (c): resource xxx")
    assert told.endswith("xxx the reason")
    assert len(told) < 2100


async def test_the_next_version_after_a_refusal_is_sent(served: World) -> None:
    stream = served.stream()
    await stream.ask(Kind.RTDS, "layer")
    first = await stream.answer()
    await stream.ask(Kind.RTDS, "layer", nonce=first.nonce, error="bad")
    served.board.publish(world(2, number=2))
    assert (await stream.answer()).version_info == world(2, number=2).of(Kind.RTDS).version


async def test_each_envoy_has_subscriptions_and_a_view_of_its_own(served: World) -> None:
    views = {"one": world(1, number=1), "two": world(1, number=2)}
    served.view = lambda node, cluster: views[node] if cluster == "c" else None
    answers = {}
    streams = {node: served.stream() for node in views}
    for node, stream in streams.items():
        await stream.ask(Kind.RTDS, "layer", node=node)
        answers[node] = await stream.answer()
    assert served.notes.open == 2
    assert {node: each.version_info for node, each in answers.items()} == {
        node: view.of(Kind.RTDS).version for node, view in views.items()
    }
    views["two"] = world(2, number=3)
    for node, stream in streams.items():
        await stream.ask(Kind.RTDS, "layer", nonce=answers[node].nonce)
    served.board.publish(world(2, number=9))
    assert (await streams["two"].answer()).version_info == world(2, number=3).of(Kind.RTDS).version
    assert await streams["one"].silent()


async def test_an_envoy_without_a_view_is_refused_and_told_of_once(
    served: World, caplog: pytest.LogCaptureFixture
) -> None:
    served.view = lambda _, __: None
    for _ in range(3):
        stream = served.stream()
        await stream.ask(Kind.RTDS, "layer", node="stranger")
        assert await stream.call.code() is grpc.StatusCode.PERMISSION_DENIED
    assert [
        record.getMessage()
        for record in caplog.records
        if record.name == "extproc.xds" and record.levelno >= logging.WARNING
    ] == ["Envoy stranger (c) refused: no view is configured for it"]
    await served.until(lambda: served.notes.open == 0)


async def test_a_view_that_goes_leaves_its_envoys_what_they_have(served: World) -> None:
    stream = served.stream()
    await stream.ask(Kind.RTDS, "layer")
    first = await stream.answer()
    served.view = lambda _, __: None
    served.board.publish(world(2, number=2))
    await stream.ask(Kind.RTDS, "layer", nonce=first.nonce)
    assert await stream.silent()
    assert served.notes.open == 1


async def test_a_type_that_is_not_served_is_told_of_once(served: World, caplog: pytest.LogCaptureFixture) -> None:
    stream = served.stream()
    for _ in range(3):
        await stream.ask("type.googleapis.com/envoy.config.listener.v3.Listener")
    await stream.ask(Kind.RTDS, "layer")
    await stream.answer()
    warnings = [
        record.getMessage()
        for record in caplog.records
        if record.name == "extproc.xds" and record.levelno >= logging.WARNING
    ]
    assert len(warnings) == 1
    assert "Listener, which is not served" in warnings[0]


@pytest.mark.parametrize("first", [True, False])
async def test_bytes_that_are_no_request_end_the_stream(served: World, first: bool) -> None:
    stream = served.stream()
    if not first:
        await stream.ask(Kind.RTDS, "layer")
        await stream.answer()
    await stream.call.write(b"\xff\xff\xff")
    assert await stream.call.code() is grpc.StatusCode.INVALID_ARGUMENT
    await served.until(lambda: served.notes.open == 0)


async def test_a_bug_ends_the_stream_and_says_nothing_of_it_to_the_other_side(
    served: World, caplog: pytest.LogCaptureFixture
) -> None:
    stream = served.stream()
    await stream.ask(Kind.RTDS, "layer")
    await stream.answer()

    def broken(_: str, __: str) -> Encoded:
        raise RuntimeError("secret")

    served.view = broken
    served.board.publish(world(2, number=2))
    assert await stream.call.code() in (grpc.StatusCode.INTERNAL, *GIVEN_UP)
    assert "secret" not in await stream.call.details()
    assert "a bug" in caplog.text


@pytest.mark.parametrize("how", ["half-close", "cancel"])
async def test_envoy_ends_a_stream(served: World, how: str, caplog: pytest.LogCaptureFixture) -> None:
    stream = served.stream()
    await stream.ask(Kind.RTDS, "layer")
    await stream.answer()
    if how == "half-close":
        await stream.call.done_writing()
        assert await stream.call.code() is grpc.StatusCode.OK
    else:
        stream.call.cancel()
    await served.until(lambda: served.notes.open == 0)
    assert "bug" not in caplog.text


async def test_a_stream_without_a_word(served: World) -> None:
    stream = served.stream()
    await stream.call.done_writing()
    assert await stream.call.code() is grpc.StatusCode.OK


async def test_draining_ends_streams_and_takes_no_new_ones(served: World) -> None:
    stream = served.stream()
    await stream.ask(Kind.RTDS, "layer")
    await stream.answer()
    served.servicer.drain()
    assert await stream.call.code() in (grpc.StatusCode.OK, *GIVEN_UP)
    late = served.stream()
    assert await late.call.code() is grpc.StatusCode.UNAVAILABLE
    await served.until(lambda: served.notes.open == 0)


async def test_an_envoy_that_reads_nothing_holds_up_nobody(served: World) -> None:
    """Its stream fills up, and the others go on."""
    big = {"name": "layer", "layer": {"x": "y" * 900_000}}
    served.board.publish(encode(Resources(2, {Kind.RTDS: {"layer": big}})))
    deaf, other = served.stream(), served.stream()
    await deaf.ask(Kind.RTDS, "layer")
    await other.ask(Kind.RTDS, "layer")
    for generation in range(3, 8):
        response = await other.answer()
        served.board.publish(world(generation, number=generation))
        await other.ask(Kind.RTDS, "layer", nonce=response.nonce)
    assert (await other.answer()).version_info == world(7, number=7).of(Kind.RTDS).version


async def test_draining_in_the_midst_of_pushes(served: World) -> None:
    """What is on its way arrives, and then the stream ends."""
    streams = [served.stream() for _ in range(20)]
    for stream in streams:
        await stream.ask(Kind.RTDS, "layer")
    await served.until(lambda: served.notes.told)
    served.servicer.drain()
    async with asyncio.timeout(5):
        for stream in streams:
            with contextlib.suppress(grpc.aio.AioRpcError):
                while await stream.call.read() is not grpc.aio.EOF:
                    pass
            assert await stream.call.code() in (grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE, *GIVEN_UP)
    await served.until(lambda: served.notes.open == 0)

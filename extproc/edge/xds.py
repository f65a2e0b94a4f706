"""The aggregated discovery service: bytes in, subscriptions, bytes out.

A stream has one writer, which takes the next push when the one before it is written: what happened meanwhile is
already in it. The rejected alternative, a queue of pushes a stream, sends a slow Envoy every weight it missed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

import grpc
from google.protobuf.message import DecodeError

from extproc.codec import discovery as codec
from extproc.loops.board import Published
from extproc.loops.tasks import spawn
from extproc.model.xds import Acknowledged, Encoded, Kind, Push, Refused, Subscribe
from extproc.resources.subscription import Subscriptions

log = logging.getLogger("extproc.xds")

MAX_NODE, MAX_REASON = 100, 2000
"""Characters of each that go into a log."""

MAX_REMEMBERED = 1000


class Observer(Protocol):
    """What the servicer reports. `seconds`: from when there was something to tell until Envoy worked with it."""

    def stream_opened(self) -> None: ...
    def stream_ended(self) -> None: ...
    def pushed(self, kind: Kind) -> None: ...
    def acked(self, kind: Kind, seconds: float) -> None: ...
    def nacked(self, kind: Kind, node: str, reason: str) -> None: ...


class Changes(Protocol):
    """A board: tells when there may be something new."""

    def next(self, seen_generation: int) -> Awaitable[Published]: ...


View = Callable[[str, str], Encoded | None]
"""What the Envoy of a node id and a node cluster is to know; None refuses it. Generation 0: not known yet."""


class AdsServicer:
    """Serves every Envoy, each with its own subscriptions. `clock` is monotonic, in seconds."""

    def __init__(self, *, view: View, board: Changes, observer: Observer, clock: Callable[[], float]) -> None:
        self._view = view
        self._board = board
        self._observer = observer
        self._clock = clock
        self._streams: set[_Stream] = set()
        self._draining = False
        self._strangers: set[str] = set()

    def drain(self) -> None:
        """End all streams and take no new ones. Envoy keeps what it has, and looks for the next server."""
        self._draining = True
        for stream in self._streams:
            stream.end()

    async def serve(self, _: object, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """One stream, until Envoy ends it or the server drains."""
        self._observer.stream_opened()
        try:
            await self._serve(context)
        except DecodeError:
            log.warning("stream aborted: not a discovery request")
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not a discovery request")
        except (asyncio.CancelledError, grpc.aio.AbortError):
            raise
        except grpc.aio.InternalError:
            log.info("Envoy left in the middle of a message")
        except Exception:
            log.exception("stream failed: a bug")
            await context.abort(grpc.StatusCode.INTERNAL, "internal error")
        finally:
            self._observer.stream_ended()

    async def _serve(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        message = b"" if self._draining else await context.read()
        if self._draining:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "draining")
        if message is grpc.aio.EOF:  # type: ignore[attr-defined]
            return
        first = codec.request(message)
        if self._view(first.node_id, first.node_cluster) is None:
            self._refuse(first)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "nothing is configured for this node")
        stream = _Stream(first, self._view, self._board, self._observer, self._clock)
        self._streams.add(stream)
        try:
            await stream.run(context)
        finally:
            self._streams.discard(stream)

    def _refuse(self, first: Subscribe) -> None:
        """Told once: a refused Envoy comes again every second."""
        node = _node(first)
        if node not in self._strangers and len(self._strangers) < MAX_REMEMBERED:
            self._strangers.add(node)
            log.warning("Envoy %s refused: no view is configured for it", node)


class _Stream:
    """One Envoy that is let in."""

    def __init__(
        self,
        first: Subscribe,
        view: View,
        board: Changes,
        observer: Observer,
        clock: Callable[[], float],
    ) -> None:
        self._first = first
        self._node = _node(first)
        self._view = view
        self._board = board
        self._observer = observer
        self._clock = clock
        self._subscriptions = Subscriptions()
        self._work = asyncio.Event()
        self._generation = 0
        self._known_at = 0.0
        self._asked_at: dict[Kind, float] = {}
        self._begun_at: dict[Kind, float] = {}
        self._unserved: set[str] = set()
        self._over = False
        self._error: Exception | None = None

    def end(self) -> None:
        self._over = True
        self._work.set()

    async def run(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """Until Envoy ends it or `end` is called. A push on its way is not given up: gRPC could not end then."""
        log.info("Envoy %s follows", self._node)
        self._look()
        self._heard(self._first)
        async with asyncio.TaskGroup() as group:
            others = (
                spawn(group, self._aside(self._read(context)), name="read requests"),
                spawn(group, self._aside(self._follow()), name="follow the board"),
            )
            await self._write(context)
            for task in others:
                task.cancel()
        if self._error is not None:
            raise self._error
        log.info("Envoy %s left", self._node)

    async def _aside(self, work: Coroutine[Any, Any, None]) -> None:
        """Beside the writer, which ends with it."""
        try:
            await work
        except Exception as error:
            self._error = error
        finally:
            self.end()

    async def _read(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        while (message := await context.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
            self._heard(codec.request(message))

    async def _follow(self) -> None:
        seen = 0
        while True:
            seen = (await self._board.next(seen)).generation
            self._look()

    async def _write(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        while not self._over:
            await self._work.wait()
            self._work.clear()
            while not self._over and (push := self._subscriptions.next_push()) is not None:
                self._begun_at[push.kind] = max(self._known_at, self._asked_at.get(push.kind, 0.0))
                await context.write(codec.response(push))
                self._observer.pushed(push.kind)

    def _look(self) -> None:
        """A view that is no longer there changes nothing for an Envoy that is."""
        encoded = self._view(self._first.node_id, self._first.node_cluster)
        if encoded is None or encoded.generation == self._generation:
            return
        self._generation, self._known_at = encoded.generation, self._clock()
        self._subscriptions.offer(encoded)
        self._work.set()

    def _heard(self, said: Subscribe) -> None:
        if said.kind is None:
            self._not_served(said.type_url)
            return
        match self._subscriptions.receive(said):
            case Acknowledged(push):
                self._observer.acked(push.kind, self._clock() - self._begun_at[push.kind])
            case Refused(push, reason):
                self._nacked(push, reason)
            case None:
                self._asked_at[said.kind] = self._clock()
        self._work.set()

    def _nacked(self, push: Push, reason: str) -> None:
        names = ", ".join(sorted(push.resources))
        log.error("Envoy %s refused %s %s: %s", self._node, push.kind.name, _line(names, 200), _line(reason))
        self._observer.nacked(push.kind, self._node, _line(reason))

    def _not_served(self, type_url: str) -> None:
        if type_url not in self._unserved and len(self._unserved) < MAX_REMEMBERED:
            self._unserved.add(type_url)
            log.warning("Envoy %s asks for %s, which is not served", self._node, _line(type_url, 200))


def _node(said: Subscribe) -> str:
    return f"{_line(said.node_id, MAX_NODE)} ({_line(said.node_cluster, MAX_NODE)})"


def _line(text: str, most: int = MAX_REASON) -> str:
    """One printable line of it; of a long one both ends: Envoy shows the resource first and the reason last."""
    if len(text) > most:
        text = f"{text[: most // 2]} ... {text[-most // 2 :]}"
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    return " ".join(printable.split())


def handler(servicer: AdsServicer) -> grpc.GenericRpcHandler[Any, Any]:
    """The servicer under Envoy's method path; messages stay bytes until the codec."""
    method = grpc.stream_stream_rpc_method_handler(servicer.serve)
    return grpc.method_handlers_generic_handler(codec.METHOD_SERVICE, {codec.METHOD_NAME: method})

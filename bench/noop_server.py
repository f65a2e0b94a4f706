"""The yardsticks in Python: the cheapest ext_proc server one would write over each transport of the sidecar.

The same server, socket, event loop and messages as the sidecar's. It reads no JSON, decides nothing and records
nothing: headers go on, a body gets one key in front and its content-length.
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import uvloop

from extproc.cli.signals import stop_on_signals
from extproc.codec.ext_proc import METHOD_NAME, METHOD_SERVICE
from extproc.codec.wire import ext_proc_pb2 as pb
from extproc.edge import ext_proc, grpc_server
from extproc.edge.http2_server import Http2Server

INSERTED = b'{"x":1,'

_GO_ON = pb.ProcessingResponse(request_headers=pb.HeadersResponse(response=pb.CommonResponse()))
_HEADERS_ANSWER = _GO_ON.SerializeToString()

Stop = Callable[[], Awaitable[None]]


def answer(message: bytes) -> tuple[bytes, bool]:
    """The answer, and whether the request is over with it."""
    request = pb.ProcessingRequest.FromString(message)
    if request.HasField("request_body"):
        return body_answer(request.request_body.body), True
    return _HEADERS_ANSWER, False


def body_answer(body: bytes) -> bytes:
    changed = INSERTED + body[1:]
    response = pb.ProcessingResponse()
    common = response.request_body.response
    length = common.header_mutation.set_headers.add(append_action=pb.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD)
    length.header.key = "content-length"
    length.header.raw_value = b"%d" % len(changed)
    common.body_mutation.body = changed
    common.clear_route_cache = True
    return response.SerializeToString()


async def process(_: object, context: grpc.aio.ServicerContext[Any, Any]) -> None:
    over = False
    while not over and (message := await context.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
        said, over = answer(message)
        await context.write(said)


class Call:
    """One stream over the fast transport."""

    __slots__ = ("over",)

    def __init__(self) -> None:
        self.over = False

    def answer(self, message: bytes) -> bytes:
        said, self.over = answer(message)
        return said

    def ended(self, outcome: str) -> None: ...


class Method:
    def open(self) -> Call:
        return Call()

    def failed(self, error: Exception) -> ext_proc.Failure:
        return ext_proc.failed(error)


async def _fast(address: str, max_body_bytes: int) -> Stop:
    most = max_body_bytes + grpc_server.MESSAGE_MARGIN_BYTES
    server = Http2Server({ext_proc.PATH: Method()}, max_message_bytes=most)
    listening, _ = grpc_server.listening(address)
    await server.start(listening)
    return lambda: server.stop(0)


async def _grpc(address: str, max_body_bytes: int) -> Stop:
    server = grpc_server.server(max_body_bytes)
    method = grpc.stream_stream_rpc_method_handler(process)
    handler = grpc.method_handlers_generic_handler(METHOD_SERVICE, {METHOD_NAME: method})
    server.add_generic_rpc_handlers((handler,))
    grpc_server.bind(server, address)
    await server.start()
    return lambda: server.stop(0)


TRANSPORTS = {"fast": _fast, "grpc": _grpc}


async def serve(transport: str, address: str, max_body_bytes: int) -> None:
    stop = stop_on_signals()
    end = await TRANSPORTS[transport](address, max_body_bytes)
    await stop.wait()
    await end()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.noop_server", description=__doc__)
    parser.add_argument("--listen", required=True, metavar="ADDRESS", help="unix:PATH or HOST:PORT")
    parser.add_argument("--transport", choices=sorted(TRANSPORTS), default="fast")
    parser.add_argument("--max-body-bytes", type=int, default=16 << 20)
    arguments = parser.parse_args()
    uvloop.run(serve(arguments.transport, arguments.listen, arguments.max_body_bytes))


if __name__ == "__main__":
    main()

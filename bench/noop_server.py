"""The yardstick: the cheapest ext_proc server one would write in Python with the same transport.

The same grpc.aio server, socket, event loop and messages as the sidecar's. It reads no JSON, decides nothing
and records nothing: headers go on, a body gets one key in front and its content-length.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from typing import Any

import grpc

from extproc.codec.ext_proc import METHOD_NAME, METHOD_SERVICE
from extproc.codec.wire import ext_proc_pb2 as pb
from extproc.edge import grpc_server

INSERTED = b'{"x":1,'

_GO_ON = pb.ProcessingResponse(request_headers=pb.HeadersResponse(response=pb.CommonResponse()))
_HEADERS_ANSWER = _GO_ON.SerializeToString()


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


async def serve(address: str, max_body_bytes: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server = grpc_server.server(max_body_bytes)
    method = grpc.stream_stream_rpc_method_handler(process)
    handler = grpc.method_handlers_generic_handler(METHOD_SERVICE, {METHOD_NAME: method})
    server.add_generic_rpc_handlers((handler,))
    grpc_server.bind(server, address)
    await server.start()
    await stop.wait()
    await server.stop(0)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.noop_server", description=__doc__)
    parser.add_argument("--listen", required=True, metavar="ADDRESS", help="unix:PATH or HOST:PORT")
    parser.add_argument("--max-body-bytes", type=int, default=16 << 20)
    arguments = parser.parse_args()
    asyncio.run(serve(arguments.listen, arguments.max_body_bytes))


if __name__ == "__main__":
    main()

"""The smallest ext_proc server: scripted answers, its protobuf written by hand.

It knows nothing of the real sidecar, so what is proved with it is proved of the Envoy configuration alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import grpc

METHOD = "envoy.service.ext_proc.v3.ExternalProcessor"
HEADERS, BODY = 2, 4  # fields of ProcessingRequest
ANSWER = {HEADERS: 1, BODY: 3}  # and of ProcessingResponse


def varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def msg(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def num(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def fields(data: bytes) -> list[tuple[int, bytes]]:
    """Every length-delimited field; numbers are skipped."""
    found, at = [], 0

    def read() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = read()
        size = read()
        if key & 7 == 2:
            found.append((key >> 3, data[at : at + size]))
            at += size
    return found


def one(data: bytes, *path: int) -> bytes:
    for number in path:
        data = next((content for key, content in fields(data) if key == number), b"")
    return data


def mutation(headers: dict[str, str], remove: tuple[str, ...] = ()) -> bytes:
    sets = b"".join(
        msg(1, msg(1, msg(1, key.encode()) + msg(3, value.encode())) + num(3, 2)) for key, value in headers.items()
    )
    return sets + b"".join(msg(2, name.encode()) for name in remove)


def carry_on(phase: int) -> bytes:
    return msg(ANSWER[phase], msg(1, b""))


def change(
    phase: int, headers: dict[str, str], *, body: bytes | None = None, remove: tuple[str, ...] = ()
) -> bytes:
    common = msg(2, mutation(headers, remove)) + num(5, 1)
    if body is not None:
        common += msg(3, msg(1, body))
    return msg(ANSWER[phase], msg(1, common))


def reject(status: int, body: bytes, headers: dict[str, str], details: str = "llm_refused") -> bytes:
    return msg(7, msg(1, num(1, status)) + msg(2, mutation(headers)) + msg(3, body) + msg(5, details.encode()))


def metadata(values: dict[str, str]) -> bytes:
    def entry(key: str, value: bytes) -> bytes:
        return msg(1, msg(1, key.encode()) + msg(2, value))

    struct = b"".join(entry(key, msg(3, value.encode())) for key, value in values.items())
    return msg(8, entry("llm", msg(5, struct)))


@dataclass
class Seen:
    """One stream: the headers and attributes of its first message, and its body if one came."""

    headers: list[tuple[str, bytes]] = field(default_factory=list)
    attributes: dict[str, bytes] = field(default_factory=dict)
    body: bytes | None = None


Script = Callable[[int, Seen], bytes]


class StubSidecar:
    """`script(phase, seen)` gives the answer to each message."""

    def __init__(self, path: str, script: Script) -> None:
        self.path = path  # of its unix socket
        self.script = script
        self.seen: list[Seen] = []
        options = [("grpc.max_receive_message_length", -1)]
        self.server = grpc.server(ThreadPoolExecutor(16), options=options)
        handler = grpc.stream_stream_rpc_method_handler(self._process)
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(METHOD, {"Process": handler}),))
        self.server.add_insecure_port(f"unix:{path}")
        self.server.start()

    def stop(self) -> None:
        self.server.stop(0).wait()

    def _process(self, messages: Iterator[bytes], _: grpc.ServicerContext) -> Iterator[bytes]:
        seen = Seen()
        self.seen.append(seen)
        for message in messages:
            phase = next(number for number, _ in fields(message) if number in ANSWER)
            if phase == HEADERS:
                values = (fields(each) for number, each in fields(one(message, HEADERS, 1)) if number == 1)
                seen.headers = [(dict(each)[1].decode(), dict(each).get(3, b"")) for each in values]
                entries = (dict(fields(each)) for number, each in fields(one(message, 9, 2)) if number == 1)
                seen.attributes = {each[1].decode(): one(each[2], 3) for each in entries}
            else:
                seen.body = one(message, BODY, 1)
            yield self.script(phase, seen)

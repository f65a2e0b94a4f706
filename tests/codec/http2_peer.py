"""A client of HTTP/2 for tests: frames written and read one by one."""

from __future__ import annotations

from typing import NamedTuple

from extproc.codec.http2 import PREFACE, Connection
from extproc.codec.http2_events import Event
from extproc.codec.http2_frames import END_HEADERS, HEADERS, block, settings

METHOD = "/a.Service/Method"
FIELDS = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", METHOD.encode()),
    (b":authority", b"a"),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
]
REQUEST = block(FIELDS)
"""A header block that leaves every table as it is."""

NO_SETTINGS = settings()


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def number(self) -> int:
        """A payload of one number."""
        return int.from_bytes(self.payload, "big")


def parse(data: bytes) -> list[Frame]:
    """All frames; what is cut short is no answer of ours."""
    found, at = [], 0
    while at < len(data):
        end = at + 9 + int.from_bytes(data[at : at + 3], "big")
        assert end <= len(data)
        stream = int.from_bytes(data[at + 5 : at + 9], "big")
        found.append(Frame(data[at + 3], data[at + 4], stream, data[at + 9 : end]))
        at = end
    return found


def raw(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame with any flags."""
    return b"".join((len(payload).to_bytes(3, "big"), bytes((kind, flags)), stream.to_bytes(4, "big"), payload))


def headers(stream: int = 1, flags: int = END_HEADERS, fields: bytes = REQUEST) -> bytes:
    return raw(HEADERS, flags, stream, fields)


def padded(payload: bytes, by: int) -> bytes:
    return bytes((by,)) + payload + bytes(by)


def met(*pairs: tuple[int, int]) -> Connection:
    """A connection whose peer has said its settings, and has read all of ours."""
    connection = Connection()
    assert connection.receive(PREFACE + settings(*pairs)) == []
    connection.take()
    return connection


def told(connection: Connection) -> list[Frame]:
    return parse(connection.take())


def fed(connection: Connection, data: bytes, cuts: list[int]) -> list[Event]:
    """The events of data that comes in pieces."""
    events, at = [], 0
    for cut in [*sorted(cuts), len(data)]:
        events += connection.receive(data[at:cut])
        at = cut
    return events

"""gRPC's own framing over HTTP/2: a flag, a length, a message; and its status in trailers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from urllib.parse import quote

from extproc.codec.http2_frames import block

PREFIX = 5
INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL = 3, 8, 12, 13
"""Status codes of gRPC; 0 is OK."""

MAX_TEXT = 100

HEADERS = b"\x88" + block([(b"content-type", b"application/grpc")])
"""With status 200, from HPACK's static table."""


class GrpcFault(Exception):
    """What ends a call: its status, and a text for the caller."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class Messages:
    """Messages of one call out of the pieces they come in; none may be longer than `most` bytes."""

    __slots__ = ("_buffer", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._buffer = bytearray()

    @property
    def pending(self) -> int:
        """Bytes of a message that is not whole yet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> Iterable[bytes]:
        """The messages that are whole now. GrpcFault, behind those before it, as soon as one shows itself to be too
        long, or compressed."""
        if not self._buffer and len(data) >= PREFIX and self._length(data) == len(data) - PREFIX:
            return [data[PREFIX:]]
        self._buffer += data
        size = len(self._buffer)
        return self._whole() if size >= PREFIX and size >= PREFIX + self._length(self._buffer) else []

    def _whole(self) -> Iterable[bytes]:
        buffer, found, at = bytes(self._buffer), [], 0
        try:
            while len(buffer) - at >= PREFIX:
                after = at + PREFIX + self._length(buffer[at : at + PREFIX])
                if after > len(buffer):
                    break
                found.append(buffer[at + PREFIX : after])
                at = after
        except GrpcFault as fault:
            return _and_then(found, fault)
        del self._buffer[:at]
        return found

    def _length(self, prefix: bytes | bytearray) -> int:
        """`prefix` begins with a message's flag and length."""
        length = prefix[1] << 24 | prefix[2] << 16 | prefix[3] << 8 | prefix[4]
        if prefix[0]:
            raise GrpcFault(UNIMPLEMENTED, "compressed messages are not read")
        if length > self._most:
            raise GrpcFault(RESOURCE_EXHAUSTED, f"a message of {length} bytes, allowed: {self._most}")
        return length


def _and_then(found: Iterable[bytes], fault: GrpcFault) -> Iterator[bytes]:
    yield from found
    raise fault


def framed(message: bytes) -> bytes:
    """A message as it goes out."""
    return b"".join((b"\0", len(message).to_bytes(4, "big"), message))


def status(code: int, text: str = "") -> bytes:
    """The block of trailers that end a call."""
    if code == 0:
        return OK
    return block([(b"grpc-status", b"%d" % code), (b"grpc-message", _quoted(text).encode())])


def _quoted(text: str) -> str:
    """Percent-encoded, and cut between two characters."""
    told = ""
    for character in text[:MAX_TEXT]:
        more = quote(character, safe=" !\"#$&'()*+,/:;<=>?@[]^`{|}~", errors="replace")
        if len(told) + len(more) > MAX_TEXT:
            break
        told += more
    return told


OK = block([(b"grpc-status", b"0")])

"""gRPC's own framing over HTTP/2: a flag, a length, a message; and its status in trailers."""

from __future__ import annotations

from urllib.parse import quote_from_bytes

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

    __slots__ = ("_most", "_pieces", "_size")

    def __init__(self, most: int) -> None:
        self._most = most
        self._pieces: list[bytes] = []
        self._size = 0

    @property
    def pending(self) -> int:
        """Bytes of a message that is not whole yet."""
        return self._size

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that are whole now. GrpcFault as soon as one shows itself to be too long, or compressed."""
        if not self._pieces and len(data) >= PREFIX and self._length(data) == len(data) - PREFIX:
            return [data[PREFIX:]]
        self._pieces.append(data)
        self._size += len(data)
        if len(self._pieces) > 1 and len(self._pieces[0]) < PREFIX:
            self._pieces = [b"".join(self._pieces)]
        if self._size < PREFIX or self._size < PREFIX + self._length(self._pieces[0]):
            return []
        return self._whole(b"".join(self._pieces))

    def _whole(self, buffer: bytes) -> list[bytes]:
        found, at = [], 0
        while len(buffer) - at >= PREFIX:
            after = at + PREFIX + self._length(buffer[at : at + PREFIX])
            if after > len(buffer):
                break
            found.append(buffer[at + PREFIX : after])
            at = after
        self._pieces = [buffer[at:]] if at < len(buffer) else []
        self._size = len(buffer) - at
        return found

    def _length(self, prefix: bytes) -> int:
        """`prefix` begins with a message's flag and length."""
        length = prefix[1] << 24 | prefix[2] << 16 | prefix[3] << 8 | prefix[4]
        if prefix[0]:
            raise GrpcFault(UNIMPLEMENTED, "compressed messages are not read")
        if length > self._most:
            raise GrpcFault(RESOURCE_EXHAUSTED, f"a message of {length} bytes, allowed: {self._most}")
        return length


def framed(message: bytes) -> bytes:
    """A message as it goes out."""
    return b"".join((b"\0", len(message).to_bytes(4, "big"), message))


def status(code: int, text: str = "") -> bytes:
    """The block of trailers that end a call."""
    if code == 0:
        return OK
    told = quote_from_bytes(text.encode()[:MAX_TEXT], safe=" !\"#$&'()*+,/:;<=>?@[]^`{|}~")[:MAX_TEXT]
    return block([(b"grpc-status", b"%d" % code), (b"grpc-message", told.encode())])


OK = block([(b"grpc-status", b"0")])

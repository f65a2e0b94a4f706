"""Frames of HTTP/2 (RFC 9113), and header blocks (RFC 7541) as plain as they can be written."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

HEAD = 9
"""Bytes before a payload: its length in three, kind, flags, stream in four."""

MAX_STREAM_ID = (1 << 31) - 1

FRAME_BYTES = 16_384
"""The most a frame may carry: what both sides start with; we never ask for more."""

MAX_FRAME_BYTES = (1 << 24) - 1
MAX_WINDOW = (1 << 31) - 1

TABLE_BYTES = 4096
"""Of what headers are compressed with, until settings say otherwise. We use none."""

NO_TABLE = b"\x20"
"""Said at the head of the first block after a peer made it smaller (RFC 7541, 4.2)."""

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, HAS_PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = range(1, 6)
MAX_HEADER_LIST_SIZE = 6


class Code(IntEnum):
    """Error codes of the RFC, section 7."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class Fault(Exception):
    """What ends a connection."""

    def __init__(self, code: Code, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def literal(name: bytes, value: bytes) -> bytes:
    """A field as HPACK writes it without table and without Huffman. Both shorter than 127 bytes."""
    if len(name) > 126 or len(value) > 126:
        raise ValueError("a field too long to be written this way")
    return b"".join((b"\0", bytes((len(name),)), name, bytes((len(value),)), value))


def block(fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join(literal(name, value) for name, value in fields)


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A whole frame; flags below 6."""
    return b"".join((len(payload).to_bytes(3, "big"), _KINDS[kind][flags], stream.to_bytes(4, "big"), payload))


_KINDS = [[bytes((kind, flags)) for flags in range(6)] for kind in range(10)]


def uint32(value: int) -> bytes:
    return value.to_bytes(4, "big")


def settings(*pairs: tuple[int, int]) -> bytes:
    """A whole frame of them."""
    return frame(SETTINGS, 0, 0, b"".join(kind.to_bytes(2, "big") + uint32(value) for kind, value in pairs))


def widened(window: int, by: int) -> int:
    """Fault where no window may be that large."""
    if window + by > MAX_WINDOW:
        raise Fault(Code.FLOW_CONTROL_ERROR, "a window too large")
    return window + by


def unpadded(payload: bytes) -> bytes:
    """What a padded payload carries. Fault where the padding is longer than it."""
    if not payload or payload[0] >= len(payload):
        raise Fault(Code.PROTOCOL_ERROR, "more padding than there is")
    return payload[1 : len(payload) - payload[0]]

"""The bytes of one stream as Envoy sends them, through the fast transport and the servicer, without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count

from extproc.codec import grpc_messages as grpc
from extproc.codec.http2 import PREFACE
from extproc.codec.http2_frames import (
    ACK,
    DATA,
    END_HEADERS,
    FRAME_BYTES,
    HEAD,
    HEADER_TABLE_SIZE,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    MAX_WINDOW,
    NO_TABLE,
    SETTINGS,
    WINDOW_UPDATE,
    block,
    frame,
    settings,
    uint32,
)
from extproc.edge.ext_proc import PATH, ExtProcServicer
from extproc.edge.grpc_server import MESSAGE_MARGIN_BYTES
from extproc.edge.http2_server import Http2Server

_FIELDS = block(
    [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", PATH),
        (b":authority", b"llm_ext_proc"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
    ]
)
_MAX_BODY_BYTES = 16 << 20
_WINDOWS = settings((HEADER_TABLE_SIZE, 0), (INITIAL_WINDOW_SIZE, MAX_WINDOW))
_ALL_OF_IT = frame(WINDOW_UPDATE, 0, 0, uint32(MAX_WINDOW - 65_535))


class Sink(asyncio.Transport):
    """Takes what is written, and keeps the last of it."""

    last = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.last = bytes(data)


class Piece:
    """Bytes that come at once: frames of one stream, whose number is set each time."""

    def __init__(self, frames: Sequence[bytes]) -> None:
        self._bytes = bytearray(b"".join(frames))
        starts = [sum(map(len, frames[:at])) for at in range(len(frames))]
        self._numbers = [slice(start + HEAD - 4, start + HEAD) for start in starts]

    def of(self, stream: int) -> bytes:
        """A copy, as what is read from a socket is one."""
        number = uint32(stream)
        for place in self._numbers:
            self._bytes[place] = number
        return bytes(self._bytes)


class CannedStream:
    """Call it: one stream more on a connection that lives on."""

    def __init__(self, servicer: ExtProcServicer, messages: tuple[bytes, bytes]) -> None:
        most = _MAX_BODY_BYTES + MESSAGE_MARGIN_BYTES
        server = Http2Server({PATH: servicer}, max_message_bytes=most, settle=servicer.recorder.settle)
        self.sink = Sink()
        self._peer = server._peer()  # what a socket's end would be given
        self._peer.connection_made(self.sink)
        self._peer.data_received(PREFACE + _WINDOWS + frame(SETTINGS, ACK, 0, b"") + _ALL_OF_IT)
        self._streams = count(1, 2)
        headers, body = (_data(message) for message in messages)
        # The first block says that there is no table; from the next on they are remembered.
        for fields in (NO_TABLE + _FIELDS, _FIELDS):
            self._pieces = (Piece([frame(HEADERS, END_HEADERS, 0, fields), *headers]), Piece(body))
            self()

    def __call__(self) -> None:
        stream = next(self._streams)
        for piece in self._pieces:
            self._peer.data_received(piece.of(stream))


def _data(message: bytes) -> list[bytes]:
    framed = grpc.framed(message)
    return [frame(DATA, 0, 0, framed[at : at + FRAME_BYTES]) for at in range(0, len(framed), FRAME_BYTES)]

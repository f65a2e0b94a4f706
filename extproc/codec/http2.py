"""The server's side of one HTTP/2 connection (RFC 9113), without a socket: bytes in, events and bytes out.

Only what gRPC uses: no push, no priorities, no field of ours that is compressed. Flow control is
kept on both sides.
"""

from __future__ import annotations

from collections.abc import Iterable

from extproc.codec.http2_events import Broken, Ended, Event, Opened, Received, Reset
from extproc.codec.http2_frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_BYTES,
    GOAWAY,
    HAS_PRIORITY,
    HEAD,
    HEADER_TABLE_SIZE,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    MAX_CONCURRENT_STREAMS,
    MAX_FRAME_BYTES,
    MAX_FRAME_SIZE,
    MAX_HEADER_LIST_SIZE,
    MAX_STREAM_ID,
    MAX_WINDOW,
    NO_TABLE,
    PADDED,
    PING,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    TABLE_BYTES,
    WINDOW_UPDATE,
    Code,
    Fault,
    frame,
    settings,
    uint32,
    unpadded,
    widened,
)
from extproc.codec.http2_headers import MAX_HEADER_BYTES, HeaderBlocks

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
WINDOW = 65_535
"""Of streams and connection, until settings and updates say otherwise."""

STREAM_WINDOW = 1 << 20
"""What a stream's sender may have on the way; taken at once, so it bounds nothing but a burst."""

MAX_STREAMS = 100_000
MAX_CONTROL = 10_000
"""Answers to pings, settings and refused streams that wait for a peer that reads none."""


class Stream:
    """`window`: what may still be sent. `granted`: what the peer may still send. `waiting`: what no window let out
    yet, from `at` on; `last`: the trailers' block behind it."""

    __slots__ = ("at", "ended", "granted", "last", "waiting", "window")

    def __init__(self, window: int) -> None:
        self.window = window
        self.granted = STREAM_WINDOW
        self.ended = False  # by the peer
        self.waiting = b""
        self.at = 0
        self.last = b""


class Connection:
    """`receive` takes what came and tells what it means; `take` gives what is to be sent."""

    def __init__(self) -> None:
        self._out: list[bytes] = [_OPENING]
        self._rest = b""
        self._begun = False
        self._closed = False
        self._farewell = b""
        self._streams: dict[int, Stream] = {}
        self._last_id = 0
        self._headers = HeaderBlocks()
        self._block = bytearray()
        self._block_of: tuple[int, int] | None = None  # stream and flags of headers that go on
        self._table = b""  # what the next headers have to say of it first
        self._window = WINDOW
        self._initial_window = WINDOW
        self._frame_bytes = FRAME_BYTES
        self._granted = MAX_WINDOW
        self._blocked: dict[int, None] = {}
        self._control = 0

    @property
    def streams(self) -> int:
        """How many are open."""
        return len(self._streams)

    @property
    def unsent(self) -> int:
        """How many frames nobody took yet."""
        return len(self._out)

    def take(self) -> bytes:
        """What is to be sent, once. A farewell stands behind the answers to what came before the break."""
        if self._farewell:
            self._out.append(self._farewell)
            self._farewell = b""
            self._streams.clear()
            self._blocked.clear()
        out = b"".join(self._out)
        self._out = []
        self._control = 0
        return out

    def receive(self, data: bytes) -> list[Event]:
        """What the peer sent, in order, as far as it is whole."""
        events: list[Event] = []
        if self._closed:
            return events
        buffer = self._rest + data if self._rest else data
        try:
            at = self._frames(buffer, events)
            self._rest = buffer[at:]
        except Fault as fault:
            self._rest = b""
            self._closed = True
            self._farewell = frame(GOAWAY, 0, 0, uint32(self._last_id) + uint32(fault.code))
            events.append(Broken(fault.code, fault.reason))
        return events

    def _frames(self, buffer: bytes, events: list[Event]) -> int:
        """Read all whole frames; where the rest begins."""
        at, end = 0, len(buffer)
        if not self._begun:
            if buffer[: len(PREFACE)] != PREFACE[:end]:
                raise Fault(Code.PROTOCOL_ERROR, "no HTTP/2")
            if end < len(PREFACE):
                return 0
            self._begun, at = True, len(PREFACE)
        while end - at >= HEAD:
            length = buffer[at] << 16 | buffer[at + 1] << 8 | buffer[at + 2]
            if length > FRAME_BYTES:
                raise Fault(Code.FRAME_SIZE_ERROR, f"a frame of {length} bytes")
            after = at + HEAD + length
            if after > end:
                break
            stream = int.from_bytes(buffer[at + 5 : at + HEAD], "big") & MAX_STREAM_ID
            self._on_frame(buffer[at + 3], buffer[at + 4], stream, buffer[at + HEAD : after], events)
            at = after
        return at

    def _on_frame(self, kind: int, flags: int, stream: int, payload: bytes, events: list[Event]) -> None:
        if self._block_of is not None and kind != CONTINUATION:
            raise Fault(Code.PROTOCOL_ERROR, "headers cut short")
        if kind == DATA:
            self._on_data(flags, stream, payload, events)
        elif kind == HEADERS:
            self._on_headers(flags, stream, payload, events)
        elif kind == WINDOW_UPDATE:
            self._on_window_update(stream, payload)
        elif kind == RST_STREAM:
            self._on_reset(stream, payload, events)
        elif kind == SETTINGS:
            self._on_settings(flags, stream, payload)
        elif kind == PING:
            self._on_ping(flags, stream, payload)
        elif kind == CONTINUATION:
            self._on_continuation(flags, stream, payload, events)
        elif kind == PUSH_PROMISE:
            raise Fault(Code.PROTOCOL_ERROR, "a client does not push")
        # Whatever else there is changes nothing: priorities, the peer's own farewell, frames of later days.

    def _on_data(self, flags: int, number: int, payload: bytes, events: list[Event]) -> None:
        self._check_opened(number)
        size = len(payload)
        self._granted -= size
        if self._granted < 0:
            raise Fault(Code.FLOW_CONTROL_ERROR, "more data than the connection was granted")
        if self._granted < MAX_WINDOW >> 1:
            self._out.append(frame(WINDOW_UPDATE, 0, 0, uint32(MAX_WINDOW - self._granted)))
            self._granted = MAX_WINDOW
        stream = self._streams.get(number)
        if stream is None:
            return  # answered or reset already
        if stream.ended:
            raise Fault(Code.STREAM_CLOSED, "data after the end of a stream")
        stream.granted -= size
        if stream.granted < 0:
            raise Fault(Code.FLOW_CONTROL_ERROR, "more data than the stream was granted")
        data = unpadded(payload) if flags & PADDED else payload
        if data:
            events.append(Received(number, data))
        if flags & END_STREAM:
            stream.ended = True
            events.append(Ended(number))
        elif stream.granted < STREAM_WINDOW >> 1:
            self._out.append(frame(WINDOW_UPDATE, 0, number, uint32(STREAM_WINDOW - stream.granted)))
            stream.granted = STREAM_WINDOW

    def _on_headers(self, flags: int, number: int, payload: bytes, events: list[Event]) -> None:
        if not number & 1:
            raise Fault(Code.PROTOCOL_ERROR, f"headers on stream {number}")
        if flags & PADDED:
            payload = unpadded(payload)
        if flags & HAS_PRIORITY:
            if len(payload) < 5:
                raise Fault(Code.FRAME_SIZE_ERROR, "headers without their priority")
            payload = payload[5:]
        if flags & END_HEADERS:
            self._on_block(flags, number, payload, events)
        else:
            self._block, self._block_of = bytearray(payload), (number, flags)

    def _on_continuation(self, flags: int, number: int, payload: bytes, events: list[Event]) -> None:
        if self._block_of is None or self._block_of[0] != number:
            raise Fault(Code.PROTOCOL_ERROR, "a continuation of nothing")
        # An empty one that does not end it brings nothing on.
        if len(self._block) + len(payload) > MAX_HEADER_BYTES or not (payload or flags & END_HEADERS):
            raise Fault(Code.ENHANCE_YOUR_CALM, "headers without end")
        self._block += payload
        if flags & END_HEADERS:
            block, begun = bytes(self._block), self._block_of[1]
            self._block, self._block_of = bytearray(), None
            self._on_block(begun, number, block, events)

    def _on_block(self, flags: int, number: int, block: bytes, events: list[Event]) -> None:
        headers = self._headers.read(block)  # also where nobody wants them: the peer's table has to be kept
        stream = self._streams.get(number)
        if stream is not None:
            if stream.ended or not flags & END_STREAM:
                raise Fault(Code.PROTOCOL_ERROR, "headers amid a stream")
            stream.ended = True
            events.append(Ended(number))
            return
        if number <= self._last_id:
            if not flags & END_STREAM:
                raise Fault(Code.PROTOCOL_ERROR, f"stream {number} opened twice, or out of order")
            return  # trailers of what was answered or reset already
        self._last_id = number
        if len(self._streams) >= MAX_STREAMS:
            self._answer_control(frame(RST_STREAM, 0, number, uint32(Code.REFUSED_STREAM)))
            return
        self._streams[number] = stream = Stream(self._initial_window)
        events.append(Opened(number, headers))
        if flags & END_STREAM:
            stream.ended = True
            events.append(Ended(number))

    def _on_reset(self, number: int, payload: bytes, events: list[Event]) -> None:
        self._check_opened(number)
        if len(payload) != 4:
            raise Fault(Code.FRAME_SIZE_ERROR, "a reset of another size")
        if self._streams.pop(number, None) is not None:
            self._blocked.pop(number, None)
            events.append(Reset(number))

    def _on_settings(self, flags: int, number: int, payload: bytes) -> None:
        if number or len(payload) % 6 or (flags & ACK and payload):
            raise Fault(Code.FRAME_SIZE_ERROR, "settings of another shape")
        if flags & ACK:
            return
        # First: until it is read, the peer takes what only the new windows allow for a breach.
        self._answer_control(frame(SETTINGS, ACK, 0, b""))
        for at in range(0, len(payload), 6):
            self._set(int.from_bytes(payload[at : at + 2], "big"), int.from_bytes(payload[at + 2 : at + 6], "big"))
        self._flush(tuple(self._blocked))

    def _set(self, setting: int, value: int) -> None:
        if setting == INITIAL_WINDOW_SIZE:
            if value > MAX_WINDOW:
                raise Fault(Code.FLOW_CONTROL_ERROR, "a window too large")
            moved, self._initial_window = value - self._initial_window, value
            for stream in self._streams.values():
                stream.window = widened(stream.window, moved)
        elif setting == MAX_FRAME_SIZE:
            if not FRAME_BYTES <= value <= MAX_FRAME_BYTES:
                raise Fault(Code.PROTOCOL_ERROR, "a frame size out of range")
            self._frame_bytes = value
        elif setting == HEADER_TABLE_SIZE and value < TABLE_BYTES:
            self._table = NO_TABLE

    def _on_ping(self, flags: int, number: int, payload: bytes) -> None:
        if number or len(payload) != 8:
            raise Fault(Code.FRAME_SIZE_ERROR, "a ping of another shape")
        if not flags & ACK:
            self._answer_control(frame(PING, ACK, 0, payload))

    def _answer_control(self, frame: bytes) -> None:
        self._control += 1
        if self._control > MAX_CONTROL:
            raise Fault(Code.ENHANCE_YOUR_CALM, "asks, and does not read the answers")
        self._out.append(frame)

    def _on_window_update(self, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise Fault(Code.FRAME_SIZE_ERROR, "a window update of another size")
        more = int.from_bytes(payload, "big") & MAX_WINDOW
        if not more:
            raise Fault(Code.PROTOCOL_ERROR, "a window update of nothing")
        if number == 0:
            self._window = widened(self._window, more)
            if self._blocked:
                self._flush(tuple(self._blocked))
        else:
            self._check_opened(number)
            stream = self._streams.get(number)
            if stream is not None:
                stream.window = widened(stream.window, more)
                if stream.waiting:
                    self._flush((number,))

    def _check_opened(self, number: int) -> None:
        if number == 0 or number > self._last_id or not number & 1:
            raise Fault(Code.PROTOCOL_ERROR, f"stream {number} was never opened")

    def respond(self, number: int, block: bytes) -> None:
        """Headers, as an encoded block."""
        if number in self._streams:
            self._out.append(frame(HEADERS, END_HEADERS, number, self._told(block) if self._table else block))

    def send(self, number: int, data: bytes) -> None:
        """Body bytes, as far as the windows let them; the rest follows by itself."""
        stream = self._streams.get(number)
        if stream is None:
            return
        if stream.waiting or len(data) > self._frame_bytes or len(data) > stream.window or len(data) > self._window:
            if data and not stream.last:
                stream.waiting, stream.at = stream.waiting[stream.at :] + data, 0
                self._blocked[number] = None
                self._flush((number,))
            return
        stream.window -= len(data)
        self._window -= len(data)
        self._out.append(frame(DATA, 0, number, data))

    def finish(self, number: int, block: bytes) -> None:
        """Trailers behind all that waits, then nothing more: a peer that has not ended is told to."""
        stream = self._streams.get(number)
        if stream is None:
            return
        if stream.waiting:
            stream.last = stream.last or block
        else:
            self._end(number, stream, block)

    def _end(self, number: int, stream: Stream, block: bytes) -> None:
        del self._streams[number]
        flags = END_HEADERS | END_STREAM
        self._out.append(frame(HEADERS, flags, number, self._told(block) if self._table else block))
        if not stream.ended:
            self._out.append(frame(RST_STREAM, 0, number, _ALL_IS_SAID))

    def _told(self, block: bytes) -> bytes:
        """Headers behind what was to be said of the table."""
        told, self._table = self._table + block, b""
        return told

    def leave(self) -> None:
        """Tell the peer to open nothing more; what is under way goes on."""
        if not self._closed:
            self._out.append(frame(GOAWAY, 0, 0, uint32(MAX_STREAM_ID) + uint32(Code.NO_ERROR)))

    def _flush(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            if self._window <= 0:
                return
            stream = self._streams[number]
            at, begun = stream.at, stream.at
            end = min(len(stream.waiting), at + max(stream.window, 0), at + self._window)
            while at < end:
                after = min(at + self._frame_bytes, end)
                self._out.append(frame(DATA, 0, number, stream.waiting[at:after]))
                at = after
            stream.window -= end - begun
            self._window -= end - begun
            stream.at = end
            if end == len(stream.waiting):
                self._sent(number, stream)

    def _sent(self, number: int, stream: Stream) -> None:
        """Nothing waits any more."""
        stream.waiting, stream.at = b"", 0
        del self._blocked[number]
        if stream.last:
            self._end(number, stream, stream.last)


_ALL_IS_SAID = uint32(Code.NO_ERROR)
_OPENING = settings(
    (HEADER_TABLE_SIZE, 0),
    (MAX_CONCURRENT_STREAMS, MAX_STREAMS),
    (INITIAL_WINDOW_SIZE, STREAM_WINDOW),
    (MAX_HEADER_LIST_SIZE, MAX_HEADER_BYTES),
) + frame(WINDOW_UPDATE, 0, 0, uint32(MAX_WINDOW - WINDOW))

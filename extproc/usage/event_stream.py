"""Server-sent events out of pieces cut anywhere: `text/event-stream` as the HTML standard reads it.

Two readings of our own. A last event without its blank line counts, since engines end streams so. A line
`error: …`, which the standard ignores, is the way older llama.cpp servers tell a failure in mid-stream.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from extproc.usage.held import Held

FIELD_BYTES = 64
"""What is kept of a line that is no data."""

ERROR = "error"

_LINE_END = re.compile(rb"\r\n|\r|\n")


class ServerEvent(Struct, frozen=True):
    """`name` is the `event` field, "" where there is none."""

    name: str
    data: Held


class EventStream:
    """Splits one stream. Holds one event, up to `limit` bytes of it."""

    __slots__ = ("_after_cr", "_data", "_in_data", "_limit", "_line", "_lines", "_name")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._line = bytearray()
        self._in_data = False
        self._after_cr = False
        self._clear()

    def _clear(self) -> None:
        self._data = Held(self._limit)
        self._lines = 0
        self._name = ""

    def feed(self, piece: bytes) -> Iterator[ServerEvent]:
        """The events this piece completes. Must be exhausted."""
        if self._after_cr and piece:  # the other half of a line end that was cut in two
            piece = piece.removeprefix(b"\n")
            self._after_cr = False
        if piece.endswith(b"\r"):
            self._after_cr = True
        first, *others = _LINE_END.split(piece)
        self._extend(first)
        for part in others:
            yield from self._end_line()
            self._extend(part)

    def end(self) -> Iterator[ServerEvent]:
        """The event the stream broke off in."""
        if self._line or self._in_data:
            yield from self._end_line()
        yield from self._dispatch()

    def _extend(self, part: bytes) -> None:
        if self._in_data:
            self._data.add(part)
            return
        self._line += part
        # One byte more than the field's name tells whether a space comes before the value.
        if self._line.startswith(b"data:") and len(self._line) > len(b"data:"):
            value = bytes(self._line[5:]).removeprefix(b" ")
            self._line.clear()
            self._begin_data(value)
        elif len(self._line) > FIELD_BYTES:
            del self._line[FIELD_BYTES:]

    def _begin_data(self, value: bytes) -> None:
        if self._lines:
            self._data.add(b"\n")
        self._data.add(value)
        self._lines += 1
        self._in_data = True

    def _end_line(self) -> Iterator[ServerEvent]:
        line, self._line = bytes(self._line), bytearray()
        if self._in_data:
            self._in_data = False
            return
        if not line:
            yield from self._dispatch()
            return
        self._field(line)

    def _field(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        if field == b"data":
            self._begin_data(b"")
            self._in_data = False
        elif field == b"event":
            self._name = value.removeprefix(b" ").decode("utf-8", "replace")
        elif field == b"error":
            self._name = ERROR

    def _dispatch(self) -> Iterator[ServerEvent]:
        if self._lines or self._name == ERROR:
            yield ServerEvent(self._name, self._data)
        if self._lines or self._name:
            self._clear()

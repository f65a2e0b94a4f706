"""Server-sent events, cut anywhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.usage.event_stream import EventStream


def events(pieces: list[bytes], limit: int = 1000) -> list[tuple[str, bytes | None]]:
    stream = EventStream(limit)
    found = [event for piece in pieces for event in stream.feed(piece)]
    return [(event.name, event.data.whole) for event in [*found, *stream.end()]]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: a\n\n", [("", b"a")]),
        (b"data:a\n\n", [("", b"a")]),
        (b"data:  a \n\n", [("", b" a ")]),
        (b"data: a\n\ndata: b\n\n", [("", b"a"), ("", b"b")]),
        (b"data: a\ndata: b\n\n", [("", b"a\nb")]),
        (b"data\ndata:\ndata: \n\n", [("", b"\n\n")]),
        (b"event: e\ndata: a\n\ndata: b\n\n", [("e", b"a"), ("", b"b")]),
        (b"event: lonely\n\ndata: b\n\n", [("", b"b")]),
        (b": comment\n\n:\ndata: a\nid: 7\nretry: 3\n\n", [("", b"a")]),
        (b"database: x\ndata: a\n\n", [("", b"a")]),
        (b'error: {"code":500}\n\n', [("error", b"")]),
        (b"data: no blank line", [("", b"no blank line")]),
        (b"data: no blank line\n", [("", b"no blank line")]),
        (b"data: a\r\n\r\ndata: b\r\rdata: c\n\n", [("", b"a"), ("", b"b"), ("", b"c")]),
        (b"\n\n\r\n\r", []),
        (b"", []),
        (b"x" * 500, []),
        (b"event: " + b"n" * 500 + b"\ndata: a\n\n", [("n" * 57, b"a")]),
    ],
)
def test_events_cut_at_every_byte(stream: bytes, expected: list[tuple[str, bytes]]) -> None:
    for at in range(len(stream) + 1):
        assert events([stream[:at], stream[at:]]) == expected
    assert events([bytes([byte]) for byte in stream]) == expected


def test_an_event_too_long_is_told_by_its_ends() -> None:
    stream = EventStream(10)
    (event,) = stream.feed(b"data: 0123456789abcdef\n\n")
    assert event.data.whole is None
    assert event.data.ends == (b"0123456789", b"6789abcdef")


ALPHABET = st.sampled_from(
    [b"data:", b"data: ", b"event: e", b"error: x", b":", b" ", b"a", b"\r", b"\n", b"\r\n", b"\n\n"]
)


@given(st.lists(ALPHABET, max_size=30), st.integers(1, 12))
def test_cuts_change_nothing(parts: list[bytes], limit: int) -> None:
    stream = b"".join(parts)
    assert events(parts, limit) == events([stream], limit) == events([bytes([byte]) for byte in stream], limit)

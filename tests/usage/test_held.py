"""What is kept of bytes in pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extproc.usage.held import HEAD_BYTES, Held


def held(pieces: list[bytes], limit: int) -> Held:
    value = Held(limit)
    for piece in pieces:
        value.add(piece)
    return value


def test_up_to_the_limit_it_is_whole() -> None:
    assert held([b"ab", b"", b"cd"], 4).whole == b"abcd"
    assert held([b"ab", b"cde"], 4).whole is None
    assert held([], 4).whole == b""


def test_beyond_it_the_ends_are_left() -> None:
    text = bytes(range(256)) * 40
    head, tail = held([text], 5000).ends
    assert head == text[:HEAD_BYTES]
    assert tail == text[-5000:]


@given(st.lists(st.binary(max_size=40)), st.integers(1, 60))
def test_cuts_change_nothing_and_memory_is_bounded(pieces: list[bytes], limit: int) -> None:
    cut, whole = held(pieces, limit), held([b"".join(pieces)], limit)
    assert (cut.whole, cut.ends) == (whole.whole, whole.ends)
    assert len(cut._kept) <= limit

"""`traceparent`, by the examples of the recommendation and by anything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.tracing.context import MAX_STATE, Parent, parent

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
KNOWN = Parent(bytes.fromhex(TRACE), bytes.fromhex(SPAN), True)


@pytest.mark.parametrize(
    ("text", "sampled"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-03", True),
        (f"00-{TRACE}-{SPAN}-02", False),
        (f" 00-{TRACE}-{SPAN}-01\t", True),
        (f"cc-{TRACE}-{SPAN}-01", True),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like", True),
    ],
)
def test_a_parent_is_read(text: str, sampled: bool) -> None:
    assert parent(text.encode()) == Parent(KNOWN.trace_id, KNOWN.span_id, sampled)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01-",
        f"cc-{TRACE}-{SPAN}-01.more",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-0g",
        f"0g-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
    ],
)
def test_a_bad_one_is_ignored(text: str) -> None:
    assert parent(text.encode()) is None


def test_none_is_none() -> None:
    assert parent(None) is None


@given(header=st.binary(max_size=80), state=st.binary(max_size=MAX_STATE + 10))
def test_anything_is_survived(header: bytes, state: bytes) -> None:
    assert parent(header, state) is None
    found = parent(f"00-{TRACE}-{SPAN}-01".encode(), state)
    assert found is not None and found.state.isascii() and len(found.state) <= MAX_STATE


def test_the_vendors_part_comes_along() -> None:
    found = parent(f"00-{TRACE}-{SPAN}-01".encode(), b"congo=t61rcWkgMzE, rojo=00f0")
    assert found is not None and found.state == "congo=t61rcWkgMzE, rojo=00f0"

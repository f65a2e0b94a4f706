"""Headers as the rules read them."""

from __future__ import annotations

import pytest

from extproc.request.headers import Headers

HEADERS = Headers(
    (
        ("x-one", b"1"),
        ("x-two", b"a"),
        ("x-two", b"b"),
        ("x-same", b"a"),
        ("x-same", b"a"),
        ("x-empty", b""),
        ("x-spaced", b" \tv "),
        ("x-bytes", b"a\xffb\x80"),
        ("x-utf8", "中".encode()),
    )
)


@pytest.mark.parametrize(
    ("name", "present", "one", "text"),
    [
        ("x-one", True, b"1", "1"),
        ("x-two", True, None, ""),
        ("x-same", True, None, ""),
        ("x-empty", True, b"", ""),
        ("x-spaced", True, b" \tv ", "v"),
        ("x-bytes", True, b"a\xffb\x80", "a\udcffb\udc80"),
        ("x-utf8", True, "中".encode(), "\udce4\udcb8\udcad"),
        ("x-none", False, None, ""),
        ("X-One", False, None, ""),
    ],
)
def test_reading(name: str, present: bool, one: bytes | None, text: str) -> None:
    assert (name in HEADERS) is present
    assert HEADERS.one(name) == one
    assert HEADERS.text(name) == text


def test_bytes_outside_ascii_survive_as_text() -> None:
    every = bytes(range(0x21, 0x100))
    assert Headers((("x", every),)).text("x").encode("ascii", "surrogateescape") == every


def test_none_at_all() -> None:
    assert Headers(()).one("x") is None

"""`traceparent` as W3C Trace Context, level 1, defines it."""

from __future__ import annotations

import re

from msgspec import Struct

MAX_STATE = 512
"""Bytes of `tracestate` that are carried on, as the recommendation asks for at least."""

_PARENT = re.compile(rb"(?P<version>[0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?P<more>-.*)?")
_SAMPLED = 1


class Parent(Struct, frozen=True):
    """The span a request comes from: 16 and 8 bytes. `state` is the vendor's part, "" where there is none."""

    trace_id: bytes
    span_id: bytes
    sampled: bool
    state: str = ""


def parent(header: bytes | None, state: bytes | None = None) -> Parent | None:
    """None where there is none or it is malformed: a bad one is ignored, never refused.

    A version after 00 may have more fields, which are left out; ff is no version, and ids of zeros are none.
    """
    found = _PARENT.fullmatch((header or b"").strip(b" \t"))
    if found is None or found["version"] == b"ff" or (found["version"] == b"00" and found["more"] is not None):
        return None
    trace_id, span_id = bytes.fromhex(found[2].decode()), bytes.fromhex(found[3].decode())
    if not any(trace_id) or not any(span_id):
        return None
    return Parent(trace_id, span_id, bool(int(found[4], 16) & _SAMPLED), _state(state))


def _state(value: bytes | None) -> str:
    if not value or len(value) > MAX_STATE or not value.isascii():
        return ""
    text = value.decode().strip()
    return text if text.isprintable() else ""

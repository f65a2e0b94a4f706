"""From the bytes of a request body to a JSON document, never raising.

Rejected: answering 400 to what cannot be read. A stand-in is asked what arrived; a refusal would hide it, and
a test could not tell it from the sidecar's own refusal.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import Any

import msgspec

MAX_BODY_BYTES = 64 * 1024 * 1024

_OBJECT = re.compile(rb"(?:\xef\xbb\xbf)?\s*\{")


def decompress(body: bytes, encoding: str) -> bytes:
    """The body behind `Content-Encoding` gzip or deflate; the body as it is where that cannot be undone."""
    if encoding.strip().lower() not in ("gzip", "x-gzip", "deflate"):
        return body
    try:
        return zlib.decompressobj(wbits=47).decompress(body, MAX_BODY_BYTES)
    except zlib.error:
        return body


def parse(content: bytes) -> dict[str, Any]:
    """The JSON object in `content`; an empty one where there is none."""
    # Uploads and tensors are not text: the first character says so without reading megabytes.
    if not _OBJECT.match(content):
        return {}
    try:
        document = msgspec.json.decode(content)
    except ValueError:
        document = _parse_leniently(content)
    except RecursionError:
        return {}
    return document if isinstance(document, dict) else {}


def _parse_leniently(content: bytes) -> Any:
    """What engines written in Python accept beyond the standard: NaN, lone surrogates, a byte order mark."""
    try:
        return _scrub(json.loads(content.decode("utf-8-sig", "replace")))
    except (ValueError, RecursionError):
        return None


def _scrub(value: Any) -> Any:
    """The same value without lone surrogates, which no UTF-8 answer can carry."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_scrub(item) for item in value]
    if isinstance(value, dict):
        return {_scrub(key): _scrub(item) for key, item in value.items()}
    return value

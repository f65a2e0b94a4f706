"""Requests as bytes, answers taken apart: what the tests against a real Envoy say and hear."""

from __future__ import annotations

import json
from typing import Any

from tests.real_envoy import Received, RecordingUpstream

LIMIT = 100_000
WEBSOCKET = (
    b"upgrade: websocket\r\nconnection: Upgrade\r\n"
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n"
)
HIDDEN = b"POST /v2/repository/index HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"
CHUNKED = b"transfer-encoding: chunked\r\n"


def ask(path: str | bytes, method: str = "GET", headers: bytes = b"", body: bytes | None = None) -> bytes:
    target = path if isinstance(path, bytes) else path.encode("latin-1")
    length = b"" if body is None else b"content-length: %d\r\n" % len(body)
    start = method.encode() + b" " + target + b" HTTP/1.1\r\nhost: x\r\n"
    ending = b"" if b"pgrade" in headers else b"connection: close\r\n"
    return start + ending + headers + length + b"\r\n" + (body or b"")


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def error(answer: bytes) -> dict[str, Any]:
    """Of an OpenAI-shaped error that says it is JSON."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head
    found = json.loads(body)["error"]
    assert set(found) == {"message", "type", "param", "code"}
    assert isinstance(found, dict)
    return found


def only(engine: RecordingUpstream) -> Received:
    assert len(engine.requests) == 1
    return engine.requests[0]

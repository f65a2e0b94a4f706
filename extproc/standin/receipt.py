"""One received request as a value, and the report about it that every answer carries."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from extproc.standin import bodies

INFER_HEADER_LENGTH = "inference-header-content-length"

MAX_LENGTH_DIGITS = 18

MAX_STRING_CHARS = 1024
"""Longer parameter strings (grammars, schemas) are cut in the report: it is held ten thousand times."""

MAX_DEPTH = 8
"""Levels of a nested parameter: what can just be decoded cannot be encoded one level deeper."""

_SECRETS = frozenset({"authorization", "proxy-authorization", "x-api-key", "api-key", "cookie"})
_TEXT_KEYS = frozenset(
    {"prompt", "messages", "input", "text_input", "content", "system", "instructions", "suffix"}
    | {"input_prefix", "input_suffix", "text"}
)


class Received(Struct):
    """A request as it arrived.

    `path` is decoded and for routing, `target` and `query` are as sent. `body` is as sent, `content` without
    its content encoding. `params` may be added to until `report` is first read.
    """

    method: str
    path: str
    target: str
    query: str
    headers: dict[str, list[str]]
    body: bytes
    content: bytes
    document: dict[str, Any]
    params: dict[str, Any]
    sha256: str
    encoded: bytes = b""

    def header(self, name: str) -> str:
        """The last value of a header by its lower-case name, empty when absent."""
        return self.headers.get(name, ("",))[-1]

    def report(self) -> msgspec.Raw:
        """What was received, as JSON; encoded once, for the answer and for the memory alike."""
        if not self.encoded:
            self.encoded = _encode(self)
        return msgspec.Raw(self.encoded)


def receive(
    method: str, path: str, raw_target: str, raw_headers: Iterable[tuple[bytes, bytes]], body: bytes
) -> Received:
    """Read one request."""
    headers = fold_headers(raw_headers)
    target, _, query = _printable(raw_target).partition("?")
    content = body
    if body and "content-encoding" in headers:
        content = bodies.decompress(body, headers["content-encoding"][-1])
    document = bodies.parse(_json_part(content, headers)) if content else {}
    return Received(
        method=method,
        path=path,
        target=target,
        query=query,
        headers=headers,
        body=body,
        content=content,
        document=document,
        params=params_of(document),
        sha256=hashlib.sha256(body).hexdigest(),
    )


def fold_headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, list[str]]:
    """Lower-case name to values in order. Latin-1 keeps every byte and always encodes."""
    headers: dict[str, list[str]] = {}
    for name, value in raw:
        headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return headers


def params_of(document: dict[str, Any]) -> dict[str, Any]:
    """The top-level scalars and the nested `parameters`, without any text of the request."""
    params = {
        key: _cut(value)
        for key, value in document.items()
        if key not in _TEXT_KEYS and not isinstance(value, (dict, list))
    }
    nested = document.get("parameters")
    if isinstance(nested, dict):
        params["parameters"] = {key: _cut(value) for key, value in nested.items() if key not in _TEXT_KEYS}
    return params


def _cut(value: Any, depth: int = 0) -> Any:
    """A value no longer and no deeper than a report should be."""
    if isinstance(value, str):
        return value[:MAX_STRING_CHARS]
    if not isinstance(value, (dict, list)):
        return value
    if depth == MAX_DEPTH:
        return "..."
    if isinstance(value, list):
        return [_cut(item, depth + 1) for item in value]
    return {key: _cut(item, depth + 1) for key, item in value.items()}


def _json_part(content: bytes, headers: dict[str, list[str]]) -> bytes:
    """The JSON in front of binary tensors, or all of the content."""
    length = header_length(headers)
    return content if length is None else content[:length]


def header_length(headers: dict[str, list[str]]) -> int | None:
    """How long the JSON in front of binary tensors is said to be; None without a number that says so."""
    text = headers.get(INFER_HEADER_LENGTH, ("",))[-1]
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MAX_LENGTH_DIGITS else None


def _printable(text: str) -> str:
    """A request target may hold bytes that are no UTF-8; Latin-1 shows them without failing."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("latin-1")


def _encode(received: Received) -> bytes:
    report = {
        "path": received.target,
        "query": received.query,
        "method": received.method,
        "headers": _redact(received.headers),
        "params": received.params,
        "body_bytes": len(received.body),
        "body_sha256": received.sha256,
    }
    return msgspec.json.encode(report)


def _redact(headers: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: ["***"] * len(values) if name in _SECRETS else values for name, values in headers.items()}

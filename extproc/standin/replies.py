"""What an API answers, as values; the server adds the report and writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from extproc.standin.receipt import Received

Document = dict[str, Any]

_ENCODER = msgspec.json.Encoder()


class Plain(Struct, frozen=True):
    """A JSON answer. The report is added to it under `received`."""

    document: Document
    status: int = 200


class Binary(Struct, frozen=True):
    """An answer that is not JSON alone."""

    body: bytes
    headers: Mapping[str, str]


class Stream(Struct, frozen=True):
    """Server-sent events as (event name or "", data). The report is added to the first one."""

    events: Iterable[tuple[str, Document]]
    done: bool = False
    """Whether `data: [DONE]` ends it, as OpenAI's chat and completions do and nobody else does."""


Reply = Plain | Binary | Stream
Respond = Callable[[Received], Reply]


def encode(document: Document, report: msgspec.Raw) -> bytes:
    """A JSON answer with the report in it."""
    return _ENCODER.encode({**document, "received": report})


def encode_events(stream: Stream, report: msgspec.Raw) -> Iterable[bytes]:
    """The stream as it goes over the wire, one piece per event."""
    carried: Document = {"received": report}
    for name, data in stream.events:
        head = f"event: {name}\n".encode() if name else b""
        yield b"%sdata: %s\n\n" % (head, _ENCODER.encode({**data, **carried}))
        carried = {}
    if stream.done:
        yield b"data: [DONE]\n\n"


def openai_error(status: int, message: str, code: str) -> Plain:
    """An error as OpenAI spells it."""
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return Plain({"error": error}, status)

"""What a peer's bytes mean, in the order they came."""

from __future__ import annotations

from msgspec import Struct

from extproc.codec.http2_frames import Code


class Opened(Struct, frozen=True):
    """A request begins."""

    stream: int
    headers: dict[bytes, bytes]


class Received(Struct, frozen=True):
    """Bytes of its body."""

    stream: int
    data: bytes


class Ended(Struct, frozen=True):
    """The peer has said all of it."""

    stream: int


class Reset(Struct, frozen=True):
    """The peer gave it up; nothing can be said on it any more."""

    stream: int


class Broken(Struct, frozen=True):
    """The peer broke the protocol: the connection is over once what is to be sent has left."""

    code: Code
    reason: str


Event = Opened | Received | Ended | Reset | Broken

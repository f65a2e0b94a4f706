"""Bytes that arrive in pieces, kept whole up to a bound; of longer ones the head and the tail.

Keeping all of it is the rejected alternative: an answer may be of any length, and hundreds are read at once.
Engines write `model` first and `usage` last, so that both ends together still tell most.
"""

from __future__ import annotations

HEAD_BYTES = 1024
"""What is kept of the beginning of something too long, where the bound allows it."""


class Held:
    """At most `limit` bytes whole. Where the pieces are cut changes nothing of what is held."""

    __slots__ = ("_head", "_kept", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._head: bytes | None = None
        self._kept = bytearray()

    def add(self, piece: bytes) -> None:
        self._kept += piece
        if self._head is None and len(self._kept) > self._limit:
            self._head = self._first()
        if self._head is not None and len(self._kept) > 2 * self._limit:
            del self._kept[: -self._limit]

    @property
    def whole(self) -> bytes | None:
        """Everything; None where that was too much."""
        return bytes(self._kept) if self._head is None else None

    @property
    def ends(self) -> tuple[bytes, bytes]:
        """The first bytes and the last `limit`; they overlap where it is short."""
        return self._first() if self._head is None else self._head, bytes(self._kept[-self._limit :])

    def _first(self) -> bytes:
        return bytes(self._kept[: min(HEAD_BYTES, self._limit)])

"""Bytes that arrive in pieces, kept whole up to a bound; of longer ones the head and the tail.

Keeping all of it is the rejected alternative: an answer may be of any length, and hundreds are read at once.
Engines write `model` first and `usage` last, so that both ends together still tell most.
"""

from __future__ import annotations

HEAD_BYTES = 1024
"""What is kept of the beginning of something too long, where the bound allows it."""


class Held:
    """At most `limit` bytes and the head. Where the pieces are cut changes nothing of what is held."""

    __slots__ = ("_at", "_head", "_kept", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._head: bytes | None = None
        self._kept = bytearray()
        self._at = 0
        """Where the oldest byte stands, once the head is cut off: the buffer is a ring then."""

    def add(self, piece: bytes) -> None:
        if self._head is not None:
            self._overwrite(piece[-self._limit :])
        elif len(self._kept) + len(piece) <= self._limit:
            self._kept += piece
        else:
            self._head = self._first(piece)
            self._kept = bytearray((bytes(self._kept) + piece)[-self._limit :])

    def _overwrite(self, piece: bytes) -> None:
        """The oldest bytes by the newest, in place: buffers that move would leave holes in memory."""
        before_end = piece[: self._limit - self._at]
        after = piece[len(before_end) :]
        self._kept[self._at : self._at + len(before_end)] = before_end
        self._kept[: len(after)] = after
        self._at = (self._at + len(piece)) % self._limit

    @property
    def whole(self) -> bytes | None:
        """Everything; None where that was too much."""
        return bytes(self._kept) if self._head is None else None

    @property
    def ends(self) -> tuple[bytes, bytes]:
        """The first bytes and the last `limit`; they overlap where it is short."""
        head = self._first(b"") if self._head is None else self._head
        return head, bytes(self._kept[self._at :] + self._kept[: self._at])

    def _first(self, more: bytes) -> bytes:
        wanted = min(HEAD_BYTES, self._limit)
        return bytes(self._kept[:wanted]) + more[: max(0, wanted - len(self._kept))]

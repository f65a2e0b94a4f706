"""Header blocks of one connection as headers.

The peer is asked to compress without a table. Equal headers are equal bytes then, and are decoded once; until it
does so, and for every new block, `hpack` decodes.
"""

from __future__ import annotations

from hpack import Decoder
from hpack.exceptions import HPACKError

from extproc.codec.http2_frames import Code, Fault

MAX_HEADER_BYTES = 65_536

MEMORY = 256
"""Blocks remembered; a peer sends a handful."""


class HeaderBlocks:
    """Every block has to pass here in order, wanted or not: one may change how the next is read."""

    def __init__(self) -> None:
        self._decoder = Decoder(max_header_list_size=MAX_HEADER_BYTES)
        self._plain = False  # the table is empty and stays so
        self._known: dict[bytes, dict[bytes, bytes]] = {}

    def read(self, block: bytes) -> dict[bytes, bytes]:
        """Of a repeated name the last value. Fault for what cannot be read, or is too much."""
        known = self._known.get(block) if self._plain else None
        if known is not None:
            return known
        try:
            headers = {bytes(name): bytes(value) for name, value in self._decoder.decode(block, raw=True)}
        except (HPACKError, ValueError, IndexError) as error:
            raise Fault(Code.COMPRESSION_ERROR, f"headers cannot be read: {type(error).__name__}") from None
        before, self._plain = self._plain, self._decoder.header_table_size == 0
        if before and self._plain and len(self._known) < MEMORY:
            self._known[block] = headers
        return headers

"""An engine that sends the first event of a stream at once and the last one when it is told to."""

from __future__ import annotations

import asyncio
from typing import Self

FIRST, LAST = b"data: first\n\n", b"data: last\n\n"


class HoldingEngine:
    """Runs on the test's event loop. `open` counts held streams, `judged` those with a decision in the headers."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.open = self.judged = 0
        self.release = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, backlog=4096)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.release.set()
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            if head.startswith(b"get "):  # a health check, or a look at the metrics
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                return
            await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0))
            self.judged += b"\r\nx-llm-tier: " in head
            self.open += 1
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n" + FIRST)
            await self.release.wait()
            writer.write(LAST)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


class Stream:
    """One client of a stream; `text` is what has arrived."""

    def __init__(self, port: int, body: bytes) -> None:
        self._port, self._body = port, body
        self.text = b""

    async def open(self) -> Self:
        """Returns when the first event is here."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        self._writer.write(head % len(self._body) + self._body)
        while FIRST not in self.text:
            block = await self._reader.read(65_536)
            assert block, f"ended before the first event: {self.text[:300]!r}"
            self.text += block
        return self

    async def rest(self) -> bytes:
        """Everything, when the stream has ended."""
        while block := await self._reader.read(65_536):
            self.text += block
        self._writer.close()
        return self.text

    def is_complete(self) -> bool:
        """With the last event, and the chunk that ends the body."""
        return LAST in self.text and self.text.endswith(b"0\r\n\r\n")

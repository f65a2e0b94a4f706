"""The status page over HTTP: the whole of it at `/`, and at `/live` the parts that changed, as server-sent events.

All that look share one rendering of a moment, and there are few of them: a page left open in many browsers costs
the requests nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping

import msgspec
from aiohttp import web

from extproc.loops.tasks import Clock, monotonic
from extproc.page.document import POLICY, document

MAX_CLIENTS = 16
EVERY_S = 1.0
"""How often parts are compared. A change shows within this and the time of one write."""

STALE_WRITE_S = 10.0
"""A client that takes nothing for so long is let go."""

Sections = Callable[[], Mapping[str, str]]


class LivePage:
    """`sections` gives the parts of this moment, by their ids; `links` are paths of other pages."""

    def __init__(self, sections: Sections, links: Iterable[str], *, clock: Clock = monotonic) -> None:
        self._sections = sections
        self._links = tuple(links)
        self._clock = clock
        self._clients = 0
        self._at: float | None = None
        self._now: Mapping[str, str] = {}
        self._closing = asyncio.Event()

    @property
    def clients(self) -> int:
        """How many follow."""
        return self._clients

    def add_to(self, app: web.Application) -> None:
        app.router.add_get("/", self.page)
        app.router.add_get("/live", self.live, allow_head=False)
        app.on_shutdown.append(self._close)

    async def page(self, _: web.Request) -> web.Response:
        return web.Response(
            text=document(self._sections(), self._links),
            content_type="text/html",
            charset="utf-8",
            headers={"Content-Security-Policy": POLICY},
        )

    async def live(self, request: web.Request) -> web.StreamResponse:
        """Until the client leaves or the page closes; 503 where too many follow already."""
        if self._clients >= MAX_CLIENTS:
            return web.Response(status=503, text="too many follow the page\n", headers={"Retry-After": "5"})
        self._clients += 1
        try:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            with contextlib.suppress(ConnectionError, TimeoutError):
                await self._follow(response)
            return response
        finally:
            self._clients -= 1

    async def _follow(self, response: web.StreamResponse) -> None:
        sent: Mapping[str, str] = {}
        while not self._closing.is_set():
            now = self._shared()
            changed = {name: part for name, part in now.items() if sent.get(name) != part}
            async with asyncio.timeout(STALE_WRITE_S):
                await response.write(event(changed))
            sent = now
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), EVERY_S)

    def _shared(self) -> Mapping[str, str]:
        """Made once for all who ask within half a turn."""
        now = self._clock()
        if self._at is None or now - self._at >= EVERY_S / 2:
            self._at, self._now = now, self._sections()
        return self._now

    async def _close(self, _: web.Application) -> None:
        self._closing.set()


def event(changed: Mapping[str, str]) -> bytes:
    """One message: parts by their ids as JSON, which has no line breaks. None of them only keeps the line open."""
    return b"data: " + msgspec.json.encode(changed) + b"\n\n" if changed else b": nothing new\n\n"

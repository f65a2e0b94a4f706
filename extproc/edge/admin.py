"""The admin pages: read-only HTTP for people, Prometheus and probes.

Everything shown comes from callables, so nothing here knows where it is kept; what is handed in carries no
secrets. Nothing can be changed through this port: it has no methods but GET and HEAD.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

import msgspec
from aiohttp import web

from extproc import __version__
from extproc.errors import CannotStart
from extproc.page.sections import sections
from extproc.snapshot import Snapshot

HEADERS = {
    "Cache-Control": "no-store",
    "Server": "extproc",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

POLICY = "default-src 'none'; frame-ancestors 'none'"
"""The content security policy of pages that bring none of their own."""

LINKS = ("/metrics", "/healthz", "/readyz", "/config", "/snapshot", "/weights", "/traffic", "/status", "/events")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminSources:
    """What the pages show. `ready` is None, or why no traffic should come; `uptime` is in seconds.

    `config` is the effective settings, with references in place of secrets; `metrics` is a body and its
    content type; `snapshot` is what `describe` makes of one.
    """

    ready: Callable[[], str | None]
    config: Callable[[], Mapping[str, object]]
    snapshot: Callable[[], Mapping[str, object]]
    weights: Callable[[], Mapping[str, object]]
    traffic: Callable[[], Mapping[str, object]]
    status: Callable[[], Mapping[str, object]]
    events: Callable[[], Iterable[object]]
    metrics: Callable[[], tuple[bytes, str]]
    uptime: Callable[[], float]


def describe(snapshot: Snapshot) -> dict[str, object]:
    """A snapshot as plain values."""
    return {
        "generation": snapshot.generation,
        "parameter_set": snapshot.parameter_set,
        "pools": [msgspec.to_builtins(pool) for pool in snapshot.registry.pools],
        "limits": msgspec.to_builtins(snapshot.limits),
        "lowest_latency_paths": list(snapshot.lowest_latency_paths),
        "encoded_bodies_pass": snapshot.encoded_bodies_pass,
    }


def status_sections(sources: AdminSources) -> dict[str, str]:
    """The parts of the status page at this moment."""
    snapshot = sources.snapshot()
    head = {
        "state": sources.ready() or "ready",
        "version": __version__,
        "uptime": timedelta(seconds=int(sources.uptime())),
        "generation": snapshot.get("generation", "none"),
        "parameter_set": snapshot.get("parameter_set", "none"),
    }
    return sections(head, sources.weights(), sources.status(), sources.traffic())


def application(sources: AdminSources) -> web.Application:
    """All pages for people but the status page, which is live."""
    pages = _Pages(sources)
    app = metrics_application(sources)
    app.router.add_get("/config", pages.config)
    app.router.add_get("/snapshot", pages.snapshot)
    app.router.add_get("/weights", pages.weights)
    app.router.add_get("/traffic", pages.traffic)
    app.router.add_get("/status", pages.protection)
    app.router.add_get("/events", pages.events)
    return app


def metrics_application(sources: AdminSources) -> web.Application:
    """What Prometheus and probes need, for an address that others may reach."""
    pages = _Pages(sources)
    app = web.Application()
    app.on_response_prepare.append(_add_headers)
    app.router.add_get("/metrics", pages.metrics)
    app.router.add_get("/healthz", pages.healthz)
    app.router.add_get("/readyz", pages.readyz)
    return app


async def start(app: web.Application, host: str, port: int) -> web.AppRunner:
    """Listen; the caller ends it with `cleanup()`."""
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except (OSError, OverflowError) as error:
        await runner.cleanup()
        raise CannotStart(f"the admin port {host}:{port} cannot be opened: {_reason(error)}") from None
    return runner


class _Pages:
    def __init__(self, sources: AdminSources) -> None:
        self._sources = sources

    async def healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(self, _: web.Request) -> web.Response:
        reason = self._sources.ready()
        if reason is None:
            return web.Response(text="ready\n")
        return web.Response(status=503, text=f"{reason}\n")

    async def metrics(self, _: web.Request) -> web.Response:
        body, content_type = self._sources.metrics()
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def config(self, _: web.Request) -> web.Response:
        return _json(self._sources.config())

    async def snapshot(self, _: web.Request) -> web.Response:
        return _json(self._sources.snapshot())

    async def weights(self, _: web.Request) -> web.Response:
        return _json(self._sources.weights())

    async def traffic(self, _: web.Request) -> web.Response:
        return _json(self._sources.traffic())

    async def protection(self, _: web.Request) -> web.Response:
        return _json(self._sources.status())

    async def events(self, _: web.Request) -> web.Response:
        """The newest first."""
        return _json(list(self._sources.events()))


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)
    response.headers.setdefault("Content-Security-Policy", POLICY)


def _json(value: object) -> web.Response:
    """Indented, in the given order; values JSON does not know as their text."""
    body = msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2)
    return web.Response(body=body + b"\n", content_type="application/json")


def _reason(error: Exception) -> str:
    """Short: asyncio puts the address and the words of the system into one long message."""
    if isinstance(error, socket.gaierror):
        return str(error.strerror)
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return str(error)

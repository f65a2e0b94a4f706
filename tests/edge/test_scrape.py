"""Pages over real sockets, from servers that behave and servers that do not."""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import http_exceptions, web

from extproc.edge.scrape import Pages, cause
from extproc.engines.exposition import MAX_PAGE_BYTES
from extproc.engines.failures import Cause, Failure
from extproc.engines.reading import Source
from extproc.loops.telemetry import Scraper, Target
from tests.engines.texts import page
from tests.ports import free_port

KEY = SimpleNamespace(host="a", port=1, ssl=None, is_ssl=False)
OK = b"HTTP/1.1 200 OK\r\n"
BODY = b"up 1\n"


@pytest.fixture
async def pages() -> AsyncIterator[Pages]:
    pages = Pages(timeout_s=0.5)
    yield pages
    await pages.close()


class Raw:
    """Servers that answer any request with given bytes and then close; None = never."""

    def __init__(self) -> None:
        self._servers: list[asyncio.Server] = []
        self.connections = 0
        self.requests: list[bytes] = []

    async def __call__(self, answer: bytes | None, *, keep: bool = False, reset: bool = False) -> str:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            try:
                while True:
                    self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                    if answer is None:
                        await asyncio.sleep(30)
                    if reset:
                        linger = writer.get_extra_info("socket")
                        linger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                        writer.transport.abort()
                        return
                    writer.write(answer or b"")
                    await writer.drain()
                    if not keep:
                        break
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            finally:
                writer.close()

        port = free_port()
        self._servers.append(await asyncio.start_server(handle, "127.0.0.1", port))
        return f"http://127.0.0.1:{port}/metrics"

    def close(self) -> None:
        for server in self._servers:
            server.close()


@pytest.fixture
async def raw() -> AsyncIterator[Raw]:
    raw = Raw()
    yield raw
    raw.close()


def sized(body: bytes, more: bytes = b"") -> bytes:
    return OK + b"content-length: %d\r\n%s\r\n" % (len(body), more) + body


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    head = OK + b"transfer-encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + end


PACKED = b"content-encoding: gzip\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        sized(BODY),
        OK + b"\r\n" + BODY,  # until the connection closes
        chunked(b"up", b" 1\n"),
        sized(gzip.compress(BODY, mtime=0), PACKED),
        chunked(*(bytes([byte]) for byte in BODY)),
    ],
)
async def test_a_page_however_it_is_framed(pages: Pages, raw: Raw, answer: bytes) -> None:
    assert await pages.fetch(await raw(answer)) == BODY


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (None, Cause.TIMEOUT),
        (b"", Cause.RESET),
        (b"HTTP/1.1 404 Not Found\r\ncontent-length: 3\r\n\r\nno\n", Cause.STATUS),
        (b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n", Cause.STATUS),
        (b"HTTP/1.1 204 Nothing\r\n\r\n", Cause.STATUS),
        (b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n", Cause.REDIRECT),
        (b"SSH-2.0-OpenSSH_9.2\r\n", Cause.PROTOCOL),
        (OK + b"content-length: 100\r\n\r\nup 1\n", Cause.RESET),
        (chunked(b"up 1\n", end=b""), Cause.RESET),
        (sized(b"not packed", PACKED), Cause.ENCODING),
        (OK + b"content-length: 99999999\r\n\r\n", Cause.TOO_LARGE),
        (OK + b"\r\n" + b"up 1\n" * (MAX_PAGE_BYTES // 5 + 1), Cause.TOO_LARGE),
        (sized(gzip.compress(b"up 1\n" * 20_000_000, mtime=0), PACKED), Cause.TOO_LARGE),
    ],
)
async def test_why_there_is_no_page(pages: Pages, raw: Raw, answer: bytes | None, expected: Cause) -> None:
    found = await pages.fetch(await raw(answer))
    assert isinstance(found, Failure)
    assert found.cause is expected


async def test_a_connection_that_is_reset(pages: Pages, raw: Raw) -> None:
    found = await pages.fetch(await raw(BODY, reset=True))
    assert isinstance(found, Failure)
    assert found.cause is Cause.RESET


async def test_a_page_that_trickles_ends_at_the_timeout(pages: Pages) -> None:
    async def trickle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(100):
            await response.write(b"up 1\n")
            await asyncio.sleep(0.1)
        return response

    app = web.Application()
    app.router.add_get("/metrics", trickle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    found = await pages.fetch(f"http://127.0.0.1:{port}/metrics")
    await runner.cleanup()
    assert isinstance(found, Failure)
    assert found.cause is Cause.TIMEOUT


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:{free}/", Cause.REFUSED),
        ("http://", Cause.PROTOCOL),
        ("ftp://127.0.0.1/", Cause.PROTOCOL),
    ],
)
async def test_nobody_there(pages: Pages, url: str, expected: Cause) -> None:
    found = await pages.fetch(url.format(free=free_port()))
    assert isinstance(found, Failure)
    assert found.cause is expected


async def test_tls_towards_a_plain_server(pages: Pages) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    port = free_port()
    async with await asyncio.start_server(handle, "127.0.0.1", port):
        found = await pages.fetch(f"https://127.0.0.1:{port}/metrics")
    assert isinstance(found, Failure)
    assert found.cause is Cause.TLS


async def test_connections_are_kept_and_pages_asked_for_unpacked(pages: Pages, raw: Raw) -> None:
    url = await raw(sized(BODY), keep=True)
    assert [await pages.fetch(url) for _ in range(5)] == [BODY] * 5
    assert (raw.connections, len(raw.requests)) == (1, 5)
    assert b"accept-encoding: identity" in raw.requests[0].lower()
    assert b"text/plain;version=0.0.4" in raw.requests[0]


async def test_two_megabytes_are_a_page(pages: Pages, raw: Raw) -> None:
    body = b"# x\n" * (MAX_PAGE_BYTES // 4)
    assert await pages.fetch(await raw(sized(body))) == body


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (TimeoutError(), Cause.TIMEOUT),
        (aiohttp.ServerTimeoutError(), Cause.TIMEOUT),
        (aiohttp.ClientConnectorDNSError(cast(Any, KEY), OSError(-2, "not known")), Cause.NAME),
        (aiohttp.ClientConnectorError(cast(Any, KEY), OSError(111, "refused")), Cause.REFUSED),
        (ssl.SSLCertVerificationError(), Cause.TLS),
        (ConnectionRefusedError(111, ""), Cause.REFUSED),
        (OSError(113, "No route to host"), Cause.UNREACHABLE),
        (OSError(104, ""), Cause.RESET),
        (aiohttp.ClientOSError(32, ""), Cause.RESET),
        (aiohttp.ServerDisconnectedError(), Cause.RESET),
        (http_exceptions.BadHttpMessage("x"), Cause.PROTOCOL),
        (aiohttp.InvalidURL("x"), Cause.PROTOCOL),
        (aiohttp.ClientError(), Cause.PROTOCOL),
    ],
)
def test_causes(error: BaseException, expected: Cause) -> None:
    assert cause(error) is expected


async def test_a_fleet_with_every_fault_over_real_sockets(pages: Pages, raw: Raw) -> None:
    """The scraper with its real client: the well-behaved are read, each fault is counted as what it is."""
    vllm = page("vllm")
    urls = {
        "well": await raw(sized(vllm), keep=True),
        "packed": await raw(sized(gzip.compress(vllm, mtime=0), PACKED)),
        "large": await raw(sized(b"# x\n" * (MAX_PAGE_BYTES // 4 - 20_000) + vllm)),
        "hangs": await raw(None),
        "resets": await raw(b"", reset=True),
        "missing": await raw(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"),
        "html": await raw(sized(b"<html><body>Sign in</body></html>")),
        "too-large": await raw(OK + b"content-length: 3000000\r\n\r\n"),
    }
    urls["well-twice"] = urls["well"]  # two endpoints at one address
    scraper = Scraper(fetch=lambda target: pages.fetch(target.url), interval_s=0.6, timeout_s=0.3)
    scraper.set_targets(Target(key, Source.VLLM, url) for key, url in urls.items())
    running = asyncio.create_task(scraper.run())
    while any(look.looks < 2 for look in scraper.looks().values()):
        await asyncio.sleep(0.05)
    running.cancel()
    looks = scraper.looks()
    well = ("well", "well-twice", "packed", "large")
    assert {key: looks[key].samples[""].kv_usage for key in well} == dict.fromkeys(well, 0.0)
    assert {key: set(look.failures) for key, look in looks.items() if key not in well} == {
        "hangs": {Cause.TIMEOUT},
        "resets": {Cause.RESET},
        "missing": {Cause.STATUS},
        "html": {Cause.NOT_METRICS},
        "too-large": {Cause.TOO_LARGE},
    }
    assert not any(looks[key].failures for key in well)

"""One page over HTTP, within a time and a size, or the cause why not.

aiohttp's client with kept connections brings a page of 50 KB for 0.2 ms of CPU, which is less than reading it
costs: a client of our own would win nothing and would have to be right about chunks, encodings and half-closed
connections by itself. Pages are asked for unpacked: an engine written in Python packs 50 KB in the thread that
serves its requests. One that packs nevertheless is understood, and the limit holds for what comes out.
"""

from __future__ import annotations

import errno
import ssl

import aiohttp
from aiohttp import http_exceptions

from extproc.engines.exposition import MAX_PAGE_BYTES
from extproc.engines.failures import Cause, Failure

TIMEOUT_S = 3.0
KEPT_S = 30.0
"""How long an idle connection is kept: above any usual interval between two looks."""

HEADERS = {"Accept": "text/plain;version=0.0.4,*/*;q=0.1", "Accept-Encoding": "identity", "User-Agent": "extproc"}


class Pages:
    """The client that all looks share. Made inside a running event loop; `close` ends it."""

    def __init__(self, *, timeout_s: float = TIMEOUT_S, max_bytes: int = MAX_PAGE_BYTES) -> None:
        self._max_bytes = max_bytes
        # How many at once is bounded by whoever asks: a second limit here would let one host hold up others.
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEPT_S, ttl_dns_cache=10)
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=timeout_s),
            headers=HEADERS,
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def fetch(self, url: str) -> bytes | Failure:
        """The body of a 200; a redirect is not followed. Never raises for what the other side does."""
        try:
            async with self._session.get(url, allow_redirects=False) as response:
                if response.status != 200:
                    return _refused(response.status)
                return await self._body(response)
        except (aiohttp.ClientError, http_exceptions.BadHttpMessage, OSError, ValueError) as error:
            return Failure(cause(error), type(error).__name__)

    async def close(self) -> None:
        await self._session.close()

    async def _body(self, response: aiohttp.ClientResponse) -> bytes | Failure:
        """Read as it comes, so that a page without a declared length, or one that unpacks to more, ends in time."""
        if (response.content_length or 0) > self._max_bytes:
            return Failure(Cause.TOO_LARGE, f"{response.content_length} bytes")
        chunks, size = [], 0
        while chunk := await response.content.readany():
            chunks.append(chunk)
            size += len(chunk)
            if size > self._max_bytes:
                response.close()
                return Failure(Cause.TOO_LARGE, f"more than {self._max_bytes} bytes")
        return b"".join(chunks)


def _refused(status: int) -> Failure:
    return Failure(Cause.REDIRECT if 300 <= status < 400 else Cause.STATUS, str(status))


_CAUSES: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], Cause], ...] = (
    (TimeoutError, Cause.TIMEOUT),
    (aiohttp.ClientConnectorDNSError, Cause.NAME),
    ((aiohttp.ClientSSLError, ssl.SSLError), Cause.TLS),
    ((http_exceptions.ContentEncodingError,), Cause.ENCODING),
    ((aiohttp.ClientResponseError, http_exceptions.BadHttpMessage, aiohttp.InvalidURL), Cause.PROTOCOL),
    ((aiohttp.ServerDisconnectedError, ConnectionResetError, BrokenPipeError), Cause.RESET),
)


def cause(error: BaseException) -> Cause:
    """What an error of the client or the system means; the first row that fits."""
    if isinstance(error, aiohttp.ClientPayloadError):
        return _of_payload(error)
    for kinds, found in _CAUSES:
        if isinstance(error, kinds):
            return found
    return _of_system(error.errno) if isinstance(error, OSError) else Cause.PROTOCOL


def _of_payload(error: aiohttp.ClientPayloadError) -> Cause:
    """An answer that ended too early, or bytes that are not packed as the headers say."""
    packed = isinstance(error.__cause__, http_exceptions.ContentEncodingError)
    return Cause.ENCODING if packed else Cause.RESET


def _of_system(number: int | None) -> Cause:
    if number == errno.ECONNREFUSED:
        return Cause.REFUSED
    if number in (errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED):
        return Cause.RESET
    return Cause.UNREACHABLE

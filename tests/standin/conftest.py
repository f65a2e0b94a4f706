"""A stand-in engine in this process, on a free port."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import aiohttp
import pytest

from extproc.standin.receipt import Received, receive
from extproc.standin.server import start
from tests import ports


@pytest.fixture
def free_port() -> int:
    return ports.free_port()


@pytest.fixture
async def engine(free_port: int) -> AsyncIterator[str]:
    """The base URL of a running engine. Blocking clients go through `asyncio.to_thread`."""
    runner = await start("127.0.0.1", free_port)
    yield f"http://127.0.0.1:{free_port}"
    await runner.cleanup()


@pytest.fixture
async def http(engine: str) -> AsyncIterator[aiohttp.ClientSession]:
    """A raw client of that engine: `http.get("/health")`."""
    async with aiohttp.ClientSession(engine) as session:
        yield session


@pytest.fixture
def request_of() -> Callable[..., Received]:
    """A received request out of a body and headers, without a server."""

    def build(
        body: bytes = b"", path: str = "/v1/chat/completions", method: str = "POST", **headers: str
    ) -> Received:
        raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        return receive(method, path, path, raw, body)

    return build

"""Clients of the front: one request and its answer, raw bytes, and many requests at once."""

from __future__ import annotations

import asyncio
import http.client
import itertools
import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import aiohttp

from tests.e2e.running import TOKENS

STRICT = "Where is my order #12345678?"
NORMAL = "What is the capital of France?"
CREATIVE = "Write a slogan for a coffee shop"
TRUSTED = {"x-caller-token": TOKENS[0]}

CHAT = "/v1/chat/completions"

_numbers = itertools.count(1)

Headers = Mapping[str, str] | Sequence[tuple[str, str | bytes]]


def new_id() -> str:
    return f"request-{next(_numbers)}"


def chat(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": "demo", "messages": [{"role": "user", "content": text}], **fields}


@dataclass(frozen=True)
class Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes
    request_id: str = ""

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name]

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def received(self) -> dict[str, Any]:
        """What the stand-in says it received."""
        assert self.status == 200, self.body
        report = self.json()["received"]
        assert isinstance(report, dict)
        return report

    @property
    def params(self) -> dict[str, Any]:
        params = self.received["params"]
        assert isinstance(params, dict)
        return params

    @property
    def seen(self) -> dict[str, list[str]]:
        """Request headers as the engine got them."""
        headers = self.received["headers"]
        assert isinstance(headers, dict)
        return headers

    def decided(self, name: str) -> str:
        """The one value of an x-llm- header that the engine got."""
        (value,) = self.seen[f"x-llm-{name}"]
        return str(value)

    def error(self, status: int, code: str) -> dict[str, Any]:
        """Checked to be an OpenAI-shaped error."""
        assert self.status == status, (self.status, self.body[:300])
        assert self.values("content-type") == ["application/json"]
        assert self.values("content-length") in ([str(len(self.body))], [])
        error = self.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["code"] == code
        assert isinstance(error, dict)
        return error


def ask(
    port: int,
    path: str = CHAT,
    body: Any = None,
    headers: Headers = (),
    *,
    method: str = "POST",
    timeout: float = 30.0,
) -> Answer:
    """One request on a connection of its own. `body`: bytes as they are, anything else as JSON."""
    pairs: list[tuple[str, str | bytes]] = list(headers.items() if isinstance(headers, Mapping) else headers)
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    given = {name.lower(): value for name, value in pairs}
    request_id = str(given.get("x-request-id") or new_id())
    if "x-request-id" not in given:
        pairs.append(("x-request-id", request_id))
    if data is not None and "content-length" not in given:
        pairs.append(("content-length", str(len(data))))
    if data is not None and "content-type" not in given:
        pairs.append(("content-type", "application/json"))
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in pairs:
            connection.putheader(name, value)
        connection.endheaders(data)
        response = connection.getresponse()
        return Answer(response.status, response.getheaders(), response.read(), request_id)
    finally:
        connection.close()


class Raw:
    """A raw connection on which requests are written by hand and answers read one after the other."""

    def __init__(self, port: int, *, timeout: float = 15.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self, *, method: str = "POST") -> Answer:
        response = http.client.HTTPResponse(self.socket, method=method)
        response.begin()
        return Answer(response.status, response.getheaders(), response.read())


def chunked(path: str, *chunks: bytes, headers: bytes = b"", trailers: bytes = b"") -> bytes:
    """A whole request with a chunked body."""
    start = b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n" % path.encode()
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return b"%stransfer-encoding: chunked\r\n%s\r\n%s0\r\n%s\r\n" % (start, headers, body, trailers)


@dataclass
class Tally:
    """What became of many requests."""

    statuses: dict[int, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)

    def add(self, status: int) -> None:
        self.statuses[status] = self.statuses.get(status, 0) + 1

    @property
    def done(self) -> int:
        return sum(self.statuses.values())


class Load:
    """Workers that ask one after the other until the block is left."""

    def __init__(self, port: int, *, workers: int = 16, keep: bool = False, body: Any = None) -> None:
        self.tally = Tally()
        self._url = f"http://127.0.0.1:{port}{CHAT}"
        self._workers, self._keep = workers, keep
        self._body = json.dumps(body or chat(STRICT, temperature=1)).encode()
        self._stopping = False

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0)
        self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(20))
        self._group = asyncio.gather(*(self._work() for _ in range(self._workers)))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopping = True
        await self._group
        await self._session.close()

    async def more(self, count: int, *, within_s: float = 30.0) -> None:
        """Wait until this many further requests are answered."""
        goal = self.tally.done + count
        async with asyncio.timeout(within_s):
            while self.tally.done + len(self.tally.errors) < goal:
                await asyncio.sleep(0.01)

    async def _work(self) -> None:
        headers = {"content-type": "application/json"}
        while not self._stopping:
            try:
                async with self._session.post(self._url, data=self._body, headers=headers) as answer:
                    body = await answer.read()
                    self.tally.add(answer.status)
                    if self._keep and answer.status == 200:
                        self.tally.answers.append(json.loads(body))
            except (aiohttp.ClientError, TimeoutError) as error:
                self.tally.errors.append(repr(error))

"""Clients as users of Triton write them: tritonclient over HTTP and gRPC, plain HTTP, streams held open.

Each asks a port many times and counts which server answered, so the port may be an engine's or Envoy's.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import tritonclient.grpc as blocking_grpc
import tritonclient.grpc.aio as aio_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from tests.engines_real.triton import STREAM, WHOLE

TIMEOUT_S = 30.0
TEXT = "how much is the fish"
FINAL = "triton_final_response"


@dataclass
class Split:
    """Who answered how often, by the name in `TritonServer.name`; and what went wrong."""

    servers: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    @property
    def answers(self) -> int:
        return self.servers.total()

    def share(self, server: str) -> float:
        """Of the answers, in [0, 1]."""
        return self.servers[server] / self.answers

    @classmethod
    def of(cls, results: Iterable[str | Exception]) -> Self:
        split = cls()
        for result in results:
            if isinstance(result, Exception):
                split.failures.append(f"{type(result).__name__}: {result}")
            else:
                split.servers[result] += 1
        return split


def generate(port: int, times: int, *, workers: int = 8, model: str = WHOLE, **fields: Any) -> Split:
    """POST /v2/models/M/generate over kept connections. Other statuses than 200 are failures."""
    local = threading.local()
    body = json.dumps({"text_input": TEXT, **fields})

    def ask() -> str:
        if not hasattr(local, "connection"):
            local.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        try:
            headers = {"content-type": "application/json"}
            local.connection.request("POST", f"/v2/models/{model}/generate", body, headers)
            answer = local.connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException):
            local.connection.close()
            raise
        if answer.status != 200:
            raise RuntimeError(f"{answer.status} {text[:200]!r}")
        return str(json.loads(text)["server"])

    return _threads(ask, times, workers)


def http_infer(port: int, times: int, *, workers: int = 8, model: str = WHOLE, **parameters: Any) -> Split:
    """tritonclient.http: infer with binary tensors."""
    local = threading.local()

    def ask() -> str:
        if not hasattr(local, "client"):  # a client belongs to one thread
            local.client = triton_http.InferenceServerClient(f"127.0.0.1:{port}", network_timeout=TIMEOUT_S)
        answer = local.client.infer(model, _inputs(triton_http), parameters=parameters or None)
        return _text(answer.as_numpy("server"))

    return _threads(ask, times, workers)


def grpc_infer(port: int, times: int, *, workers: int = 8, model: str = WHOLE, **parameters: Any) -> Split:
    """tritonclient.grpc: ModelInfer, all workers over one HTTP/2 connection."""
    with blocking_grpc.InferenceServerClient(f"127.0.0.1:{port}") as client:

        def ask() -> str:
            inputs = _inputs(blocking_grpc)
            answer = client.infer(model, inputs, parameters=parameters or None, client_timeout=TIMEOUT_S)
            return _text(answer.as_numpy("server"))

        return _threads(ask, times, workers)


async def grpc_infer_aio(port: int, times: int, *, workers: int = 8, model: str = WHOLE, **arguments: Any) -> Split:
    """tritonclient.grpc.aio: ModelInfer. `arguments` go to `infer`: priority, timeout, headers, parameters."""
    async with aio_grpc.InferenceServerClient(f"127.0.0.1:{port}") as client:

        async def ask() -> str:
            answer = await client.infer(model, _inputs(aio_grpc), client_timeout=TIMEOUT_S, **arguments)
            return _text(answer.as_numpy("server"))

        return await _tasks(ask, times, workers)


class OpenStream:
    """ModelStreamInfer whose client side stays open: requests can follow until the block is left.

    async with OpenStream(port) as stream:
        words = [word async for word in stream.ask("one two", max_tokens=2)]
    """

    def __init__(self, port: int, *, headers: dict[str, str] | None = None) -> None:
        self._client = aio_grpc.InferenceServerClient(f"127.0.0.1:{port}")
        self._requests: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._headers = headers
        self.servers: Counter[str] = Counter()

    async def __aenter__(self) -> Self:
        self._answers = self._client.stream_infer(self._sent(), stream_timeout=TIMEOUT_S, headers=self._headers)
        return self

    async def __aexit__(self, *_: object) -> None:
        """The client side ends, and with it the stream."""
        self._requests.put_nowait(None)
        await self._client.close()

    async def _sent(self) -> AsyncIterator[dict[str, Any]]:
        while (request := await self._requests.get()) is not None:
            yield request

    async def ask(
        self, text: str, *, max_tokens: int = 4, model: str = STREAM, **parameters: Any
    ) -> AsyncIterator[str]:
        """One request; its texts as they come. Ends with its final response, the stream does not."""
        inputs = _inputs(aio_grpc, text, max_tokens=max_tokens, batched=model == WHOLE)
        self._requests.put_nowait({"model_name": model, "inputs": inputs, "parameters": parameters or None})
        async for result, error in self._answers:
            if error is not None:
                raise error
            self.servers[_text(result.as_numpy("server"))] += 1
            yield _text(result.as_numpy("text_output"))
            if result.get_response().parameters[FINAL].bool_param:
                return


def _inputs(client: Any, text: str = TEXT, *, max_tokens: int | None = None, batched: bool = True) -> list[Any]:
    """The tensors of one request; `client` is the tritonclient module whose class is needed."""
    shape = [1, 1] if batched else [1]
    said = client.InferInput("text_input", shape, "BYTES")
    said.set_data_from_numpy(np.full(shape, text.encode(), dtype=object))
    if max_tokens is None:
        return [said]
    length = client.InferInput("max_tokens", shape, "INT32")
    length.set_data_from_numpy(np.full(shape, max_tokens, dtype=np.int32))
    return [said, length]


def _text(tensor: Any) -> str:
    return str(tensor.flat[0].decode())


def _threads(ask: Callable[[], str], times: int, workers: int) -> Split:
    def one(_: int) -> str | Exception:
        try:
            return ask()
        except (OSError, http.client.HTTPException, InferenceServerException, RuntimeError) as error:
            return error

    with ThreadPoolExecutor(workers) as pool:
        return Split.of(pool.map(one, range(times)))


async def _tasks(ask: Callable[[], Awaitable[str]], times: int, workers: int) -> Split:
    room = asyncio.Semaphore(workers)

    async def one() -> str | Exception:
        async with room:
            try:
                return await ask()
            except InferenceServerException as error:
                return error

    return Split.of(await asyncio.gather(*(one() for _ in range(times))))

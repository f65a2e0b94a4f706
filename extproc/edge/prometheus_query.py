"""A Prometheus server's query API as a source: one instant query per term, with PromQL from the configuration.

Each term is a target of its own: a query that is wrong or slow costs that term alone, and is counted as its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import quote

import msgspec
from msgspec import Struct

from extproc.engines.exposition import MAX_SERIES, Point, Points
from extproc.engines.failures import Cause, Failure

Get = Callable[[str], Awaitable[bytes | Failure]]


class _Series(Struct):
    value: tuple[float, str]
    metric: dict[str, str] = {}


class _Data(Struct):
    resultType: str
    result: msgspec.Raw


class _Answer(Struct):
    status: str
    data: _Data | None = None
    errorType: str = ""


_ANSWER = msgspec.json.Decoder(_Answer)
_VECTOR = msgspec.json.Decoder(list[_Series])


class Queries:
    """`queries` is PromQL by term; `base_url` is the server's, with the path it is served under."""

    def __init__(self, *, get: Get, base_url: str, queries: Mapping[str, str]) -> None:
        self._get = get
        self._urls = {term: url(base_url, promql) for term, promql in queries.items()}

    @property
    def terms(self) -> tuple[str, ...]:
        return tuple(self._urls)

    async def fetch(self, term: str) -> Points | Failure:
        """What the server knows of a term of `queries`, as points of that name with the result's labels."""
        body = await self._get(self._urls[term])
        return body if isinstance(body, Failure) else read(term, body)


def url(base_url: str, promql: str) -> str:
    return f"{base_url.rstrip('/')}/api/v1/query?query={quote(promql, safe='')}"


def read(term: str, body: bytes) -> Points | Failure:
    """An answer of the query API as points. One result alone is in a wrong form: all of them are refused."""
    try:
        answer = _ANSWER.decode(body)
        if answer.status != "success" or answer.data is None:
            return Failure(Cause.QUERY, answer.errorType or answer.status)
        if answer.data.resultType != "vector":
            return Failure(Cause.QUERY, f"a {answer.data.resultType}, not a vector")
        series = _VECTOR.decode(answer.data.result)
        if len(series) > MAX_SERIES:
            return Failure(Cause.TOO_MANY_SERIES, f"{len(series)} series")
        return tuple(Point(term, one.metric, float(one.value[1])) for one in series)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return Failure(Cause.NOT_METRICS, "no answer of a query API")

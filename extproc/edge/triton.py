"""Triton over gRPC: live, ready, and its statistics as points of the names its metrics page has.

For servers whose metrics port is closed. Statistics carry neither GPU nor queue: the page is the better source.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any
from urllib.parse import urlsplit

from tritonclient.grpc.aio import InferenceServerClient  # type: ignore[import-untyped]
from tritonclient.utils import InferenceServerException  # type: ignore[import-untyped]

from extproc.engines.exposition import MAX_PAGE_BYTES, MAX_SERIES, Point, Points
from extproc.engines.failures import Cause, Failure

TIMEOUT_S = 3.0

CHANNEL = [
    ("grpc.max_receive_message_length", MAX_PAGE_BYTES),
    ("grpc.use_local_subchannel_pool", 1),  # a closed channel takes its connection along
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2000),  # gRPC's own two minutes would hide a server that came back
]

_DURATIONS = {
    "nv_inference_request_duration_us": "success",
    "nv_inference_queue_duration_us": "queue",
    "nv_inference_compute_input_duration_us": "compute_input",
    "nv_inference_compute_infer_duration_us": "compute_infer",
    "nv_inference_compute_output_duration_us": "compute_output",
}

_CAUSES = {
    "StatusCode.DEADLINE_EXCEEDED": Cause.TIMEOUT,
    "StatusCode.UNAVAILABLE": Cause.REFUSED,
    "StatusCode.RESOURCE_EXHAUSTED": Cause.TOO_LARGE,
}


class Servers:
    """Clients by `grpc://host:port` or `grpcs://host:port`, kept until `retain` leaves them out."""

    def __init__(self, *, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._clients: dict[str, Any] = {}

    async def live(self, url: str) -> bool | Failure:
        answer: bool | Failure = await self._asked(url, "is_server_live")
        return answer

    async def ready(self, url: str) -> bool | Failure:
        answer: bool | Failure = await self._asked(url, "is_server_ready")
        return answer

    async def statistics(self, url: str) -> Points | Failure:
        """Cumulative statistics of every model that was loaded, as points."""
        answer = await self._asked(url, "get_inference_statistics")
        return answer if isinstance(answer, Failure) else points(answer)

    async def retain(self, urls: Collection[str]) -> None:
        """Close the clients of all other servers."""
        for url in [url for url in self._clients if url not in urls]:
            await self._clients.pop(url).close()

    async def close(self) -> None:
        await self.retain(())

    async def _asked(self, url: str, method: str) -> Any:
        try:
            return await getattr(self._client(url), method)(client_timeout=self._timeout_s)
        except InferenceServerException as error:
            return Failure(_CAUSES.get(error.status() or "", Cause.STATUS), error.status() or "")

    def _client(self, url: str) -> Any:
        client = self._clients.get(url)
        if client is None:
            parts = urlsplit(url)
            client = InferenceServerClient(parts.netloc, ssl=parts.scheme == "grpcs", channel_args=CHANNEL)
            self._clients[url] = client
        return client


def points(statistics: Any) -> Points | Failure:
    """A ModelStatistics message as points; nanoseconds become the page's microseconds."""
    found = [point for model in statistics.model_stats for point in _of_model(model)]
    if len(found) > MAX_SERIES:
        return Failure(Cause.TOO_MANY_SERIES, f"{len(found)} series")
    return tuple(found)


def _of_model(model: Any) -> Iterator[Point]:
    labels, stats = {"model": model.name, "version": model.version}, model.inference_stats
    yield Point("nv_inference_request_success", labels, float(stats.success.count))
    yield Point("nv_inference_request_failure", labels, float(stats.fail.count))
    yield Point("nv_inference_count", labels, float(model.inference_count))
    yield Point("nv_inference_exec_count", labels, float(model.execution_count))
    for name, part in _DURATIONS.items():
        yield Point(name, labels, getattr(stats, part).ns / 1000)

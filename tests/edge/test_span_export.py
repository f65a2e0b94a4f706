"""Spans on their way to a collector that is slow, away, or picky."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

from extproc.edge import span_export
from extproc.edge.span_export import SpanExport
from extproc.model.names import Dialect
from extproc.request.headers import Headers
from extproc.settings import load
from extproc.tracing.settings import TracingConfig
from tests.collector import Collector
from tests.decisions import decided
from tests.ports import free_port

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, UNSAMPLED = (f"00-{TRACE}-{SPAN}-{flags}" for flags in ("01", "00"))


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


def config(url: str, **changes: object) -> TracingConfig:
    return load(b"{}").tracing.model_copy(update={"endpoint": url, "interval_s": 0.02, **changes})


class World:
    def __init__(self, config: TracingConfig, chance: float = 0.5) -> None:
        self.counts: Counter[str] = Counter()
        self.export = SpanExport(config, version="1", instance="i", count=self._count, chance=lambda: chance)

    def _count(self, result: str, spans: int) -> None:
        self.counts[result] += spans

    def decide(self, traceparent: str | None = SAMPLED, times: int = 1) -> None:
        headers = Headers([] if traceparent is None else [("traceparent", traceparent.encode())])
        for _ in range(times):
            self.export.decided(
                decided(), headers, Dialect.OPENAI_CHAT, request_id="r-1", started_s=1.0, ended_s=2.0
            )

    async def runs_until(self, **counts: int) -> None:
        """Then it is ended as the process ends it."""
        task = asyncio.create_task(self.export.run())
        async with asyncio.timeout(20):
            while any(self.counts[name] < count for name, count in counts.items()):
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait({task})


async def test_the_parent_is_the_clients(collector: Collector) -> None:
    world = World(config(collector.url))
    world.decide()
    await world.runs_until(exported=1)
    (span,) = collector.spans()
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, SPAN)
    assert len(span.span_id) == 8 and any(span.span_id)
    assert collector.content_types == ["application/x-protobuf"]


@pytest.mark.parametrize(
    ("traceparent", "root_share", "exported"),
    [(UNSAMPLED, 1.0, 0), (SAMPLED, 0.0, 1), (None, 0.0, 0), (None, 1.0, 1), (None, 0.4, 0), ("nonsense", 1.0, 1)],
)
async def test_who_is_sampled(
    collector: Collector, traceparent: str | None, root_share: float, exported: int
) -> None:
    world = World(config(collector.url, root_share=root_share))
    world.decide(traceparent)
    await world.runs_until(exported=exported)
    spans = collector.spans()
    assert len(spans) == exported
    assert all(span.parent_span_id == (bytes.fromhex(SPAN) if traceparent == SAMPLED else b"") for span in spans)


async def test_what_does_not_fit_is_dropped_and_counted(collector: Collector) -> None:
    world = World(config(collector.url, max_pending=10, batch=4))
    world.decide(times=25)
    await world.runs_until(exported=10)
    assert world.counts == {"dropped": 15, "exported": 10, "rejected": 0, "failed": 0}
    assert [len(each.resource_spans[0].scope_spans[0].spans) for each in collector.requests] == [4, 4, 2]


async def test_a_busy_collector_is_asked_again(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(span_export, "RETRY_S", 0.01)
    collector.statuses = [503, 429]
    world = World(config(collector.url))
    world.decide(times=3)
    await world.runs_until(exported=3)
    assert (collector.asked, len(collector.spans())) == (3, 3)


async def test_one_that_refuses_is_not_asked_again(collector: Collector, caplog: pytest.LogCaptureFixture) -> None:
    collector.statuses = [400]
    world = World(config(collector.url))
    world.decide()
    await world.runs_until(failed=1)
    assert collector.asked == 1
    assert [record.getMessage() for record in caplog.records] == [
        f"spans are not taken by {collector.url}: status 400"
    ]


async def test_one_that_is_away_costs_spans_and_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(span_export, "RETRY_S", 0.01)
    world = World(config(f"http://127.0.0.1:{free_port()}/v1/traces", batch=1))
    world.decide(times=3)
    await world.runs_until(failed=3)
    assert world.counts["failed"] == 3
    assert len(caplog.records) == 1


async def test_what_a_collector_rejects_is_counted_apart(collector: Collector) -> None:
    collector.reject = 1
    world = World(config(collector.url))
    world.decide(times=3)
    await world.runs_until(exported=2)
    assert world.counts["rejected"] == 1


async def test_the_last_ones_leave_before_the_end(collector: Collector) -> None:
    world = World(config(collector.url, interval_s=60.0))
    task = asyncio.create_task(world.export.run())
    await asyncio.sleep(0)
    world.decide(times=2)
    task.cancel()
    await asyncio.wait({task})
    assert len(collector.spans()) == 2
    assert world.counts["exported"] == 2

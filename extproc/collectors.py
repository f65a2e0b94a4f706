"""Tallies as Prometheus families, made when somebody asks.

What is counted once per request is added to a tally: the client library's own counters take a lock and look labels
up each time.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from extproc.tally import BucketsBy, Counts

Labels = tuple[str, ...]


def counts(
    registry: CollectorRegistry, name: str, text: str, labels: Labels, tally: Counts | None = None
) -> Counts:
    """A counter by labels, or one kept elsewhere. ValueError where the registry has a family of that name."""
    tally = tally or Counts()
    registry.register(_CountsCollector(name, text, labels, tally))
    return tally


def buckets(
    registry: CollectorRegistry,
    name: str,
    text: str,
    bounds: tuple[float, ...],
    labels: Labels,
    *,
    tally: BucketsBy | None = None,
) -> BucketsBy:
    """A histogram by labels; `bounds` are upper ones, ascending, without infinity."""
    tally = tally or BucketsBy(bounds)
    registry.register(_BucketsCollector(name, text, labels, tally))
    return tally


class _CountsCollector(Collector):
    def __init__(self, name: str, text: str, labels: tuple[str, ...], counts: Counts) -> None:
        self._described = (name, text, labels)
        self._counts = counts

    def describe(self) -> Iterator[Metric]:
        name, text, labels = self._described
        yield CounterMetricFamily(name, text, labels=labels)

    def collect(self) -> Iterator[Metric]:
        name, text, labels = self._described
        family = CounterMetricFamily(name, text, labels=labels)
        for values, count in self._counts.items():
            family.add_metric(values, count)
        yield family


class _BucketsCollector(Collector):
    def __init__(self, name: str, text: str, labels: tuple[str, ...], buckets: BucketsBy) -> None:
        self._described = (name, text, labels)
        self._buckets = buckets

    def describe(self) -> Iterator[Metric]:
        name, text, labels = self._described
        yield HistogramMetricFamily(name, text, labels=labels)

    def collect(self) -> Iterator[Metric]:
        name, text, labels = self._described
        family = HistogramMetricFamily(name, text, labels=labels)
        for values, buckets in self._buckets.items():
            rows = [(floatToGoString(bound), count) for bound, count in buckets.cumulative()]  # type: ignore[no-untyped-call]
            family.add_metric(values, rows, buckets.total)
        yield family

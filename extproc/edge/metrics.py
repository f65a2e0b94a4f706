"""What is counted, as Prometheus metrics on a registry of our own.

The recorder is called on the decision path: children of a metric are looked up by their label values in a
plain dict, because `labels()` costs more than all the rest. Label values are bounded: whatever a client or a
configuration can vary ends up as `other` after `MAX_VALUES` different ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from extproc.model.commands import RecordDecision, RecordPass, RecordReject

MAX_VALUES = 200
"""Different values of one label of one metric."""

OTHER = "other"

DECISION_BUCKETS_S = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1)

TOKEN_BUCKETS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)

M = TypeVar("M", Counter, Histogram)


class AuditCounts(Protocol):
    """What the audit writer knows about itself, read when metrics are scraped."""

    @property
    def written(self) -> int: ...
    @property
    def dropped(self) -> int: ...
    @property
    def failures(self) -> int: ...
    @property
    def pending(self) -> int: ...


class Metrics:
    """Everything recorded, and its exposition. Used from the event loop's thread only."""

    def __init__(self, *, version: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # one more series for each one, unread
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._requests = self._counter("llm_requests_total", "Decided requests.", "dialect", "tier", "class")
        self._changes = self._counter("llm_changes_total", "Fields changed by a rule.", "field", "rule")
        self._passed = self._counter("llm_passed_total", "Requests passed untouched.", "reason")
        self._rejections = self._counter("llm_rejections_total", "Rejected requests.", "reason", "status")
        granted = self._histogram("llm_granted_tokens", "Granted output length.", TOKEN_BUCKETS, "tier")
        self._granted = _Series(granted)
        self._decision = self._histogram("llm_decision_seconds", "Time to decide.", DECISION_BUCKETS_S)
        self._streams = self._counter("llm_streams_total", "Ended ext_proc streams.", "outcome")
        self._open = self._gauge("llm_streams_open", "Open ext_proc streams.")
        self._generation = self._gauge("llm_config_generation", "Generation of the current snapshot.")
        self._reloads = self._counter("llm_config_reloads_total", "Configuration reloads.", "result")
        self._last_reload = self._gauge("llm_config_last_reload_success", "1 = applied, 0 = refused.")
        self._last_reload.set(1)
        self._set = self._gauge("llm_parameter_set_info", "The active parameter set.", "name", "version")
        self._gauge("llm_build_info", "The running version.", "version").labels(version).set(1)

    def _counter(self, name: str, text: str, *labels: str) -> _Series[Counter]:
        return _Series(Counter(name, text, labels, registry=self.registry))

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)

    def decided(self, record: RecordDecision) -> None:
        decision = record.decision
        dialect = record.target.dialect or "none"
        self._requests.at((dialect, decision.tier, decision.request_class)).inc()
        for change in decision.changes:
            self._changes.at((change.field, change.rule)).inc()
        if decision.max_tokens is not None:
            self._granted.at((decision.tier,)).observe(decision.max_tokens)

    def passed(self, record: RecordPass) -> None:
        self._passed.at((record.reason,)).inc()

    def rejected(self, record: RecordReject) -> None:
        self._rejections.at((record.reason, str(record.status))).inc()

    def decision_seconds(self, seconds: float) -> None:
        self._decision.observe(seconds)

    def stream_opened(self) -> None:
        self._open.inc()

    def stream_ended(self, outcome: str) -> None:
        self._open.dec()
        self._streams.at((outcome,)).inc()

    def published(self, generation: int, parameter_set: str) -> None:
        """A snapshot is current; `parameter_set` is `name@version`. The info series of the last one goes."""
        name, _, version = parameter_set.partition("@")
        self._generation.set(generation)
        self._set.clear()
        self._set.labels(name, version).set(1)

    def reloaded(self, generation: int) -> None:
        self._generation.set(generation)
        self._last_reload.set(1)
        self._reloads.at(("success",)).inc()

    def reload_failed(self, reason: str) -> None:
        self._last_reload.set(0)
        self._reloads.at((reason,)).inc()

    def watch_audit(self, counts: AuditCounts) -> None:
        """Expose the audit writer's own counts."""
        self.registry.register(_AuditCollector(counts))

    def exposition(self) -> tuple[bytes, str]:
        """The text format and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST


class _Series(Generic[M]):
    """A labelled metric whose children are remembered, and whose label values are bounded."""

    def __init__(self, metric: M) -> None:
        self._metric: M = metric
        self._children: dict[tuple[str, ...], M] = {}
        self._seen: dict[int, set[str]] = {}

    def at(self, values: tuple[str, ...]) -> M:
        child = self._children.get(values)
        return child if child is not None else self._find(values)

    def _find(self, values: tuple[str, ...]) -> M:
        """Refused values are not remembered: what clients send must not grow a dict either."""
        admitted = tuple(self._admit(label, value) for label, value in enumerate(values))
        child = self._children.get(admitted)
        if child is None:
            child = self._children[admitted] = self._metric.labels(*admitted)
        return child

    def _admit(self, label: int, value: str) -> str:
        seen = self._seen.setdefault(label, set())
        if value in seen:
            return value
        if len(seen) >= MAX_VALUES:
            return OTHER
        seen.add(value)
        return value


class _AuditCollector(Collector):
    def __init__(self, counts: AuditCounts) -> None:
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        records = CounterMetricFamily(
            "llm_audit_records", "Audit records by what became of them.", labels=("result",)
        )
        records.add_metric(("written",), self._counts.written)
        records.add_metric(("dropped",), self._counts.dropped)
        yield records
        yield CounterMetricFamily(
            "llm_audit_failures", "Errors while writing audit records.", value=self._counts.failures
        )
        yield GaugeMetricFamily(
            "llm_audit_pending", "Audit records that wait to be written.", value=self._counts.pending
        )

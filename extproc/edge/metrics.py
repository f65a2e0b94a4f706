"""What is counted, as Prometheus metrics on a registry of our own.

Tallies are added to elsewhere, on the decision path; collectors make families of them when Prometheus asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from prometheus_client import (
    CollectorRegistry,
    Gauge,
    GCCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from extproc import collectors
from extproc.recorded import Recorded
from extproc.tally import Counts


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
        self.recorded = recorded = Recorded()
        self._counts("requests", "Decided requests.", "dialect", "tier", "class")
        self._counts("classified", "Decided requests by who told the tier, or why nobody did.", "source", "result")
        self._counts("fallbacks", "Requests that went to a light pool.", "pool", "reason")
        self._counts("changes", "Fields changed by a rule.", "field", "rule")
        self._counts("passed", "Requests passed untouched.", "reason")
        self._counts("rejections", "Rejected requests.", "reason", "status")
        self._counts("streams", "Ended ext_proc streams.", "outcome")
        self._counts("trace_spans", "Spans of decisions by what became of them.", "result")
        self._buckets("granted", "llm_granted_tokens", "Granted output length.", "tier")
        self._buckets("decision", "llm_decision_seconds", "Time to decide.")
        self._reloads = collectors.counts(
            self.registry, "llm_config_reloads", "Configuration reloads.", ("result",)
        )
        self._open_elsewhere: dict[str, int] = {}
        self._gauge("llm_streams_open", "Open ext_proc streams.").set_function(
            lambda: recorded.open + sum(self._open_elsewhere.values())
        )
        self._generation = self._gauge("llm_config_generation", "Generation of the current snapshot.")
        self._last_reload = self._gauge("llm_config_last_reload_success", "1 = applied, 0 = refused.")
        self._last_reload.set(1)
        self._waiting = self._gauge("llm_config_waiting_for_restart", "Changed keys that need a restart.")
        self._set = self._gauge("llm_parameter_set_info", "The active parameter set.", "name", "version")
        self._workers = self._gauge("llm_workers", "Data-plane processes, where there are several.", "state")
        self._gauge("llm_build_info", "The running version.", "version").labels(version).set(1)

    def _counts(self, family: str, text: str, *labels: str) -> None:
        collectors.counts(self.registry, f"llm_{family}", text, labels, self.recorded.counts[family])

    def _buckets(self, family: str, name: str, text: str, *labels: str) -> None:
        tally = self.recorded.buckets[family]
        collectors.buckets(self.registry, name, text, tally.bounds, labels, tally=tally)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def open_elsewhere(self, worker: str, streams: int) -> None:
        """How many streams another process has open; 0 where it is gone."""
        self._open_elsewhere[worker] = streams

    def workers(self, *, expected: int, ready: int) -> None:
        """`ready`: they have a snapshot in force, and take requests."""
        self._workers.labels("expected").set(expected)
        self._workers.labels("ready").set(ready)

    def published(self, generation: int, parameter_set: str) -> None:
        """A snapshot is current; `parameter_set` is `name@version`. The info series of the last one goes."""
        name, _, version = parameter_set.partition("@")
        self._generation.set(generation)
        self._set.clear()
        self._set.labels(name, version).set(1)

    def waiting(self, keys: int) -> None:
        self._waiting.set(keys)

    def reloaded(self, generation: int) -> None:
        self._generation.set(generation)
        self._last_reload.set(1)
        self._reloads.add(("success",))

    def reload_failed(self, reason: str) -> None:
        self._last_reload.set(0)
        self._reloads.add((reason,))

    def watch_audit(self, counts: AuditCounts) -> None:
        """Expose the audit writer's own counts."""
        self.registry.register(_AuditCollector(counts, self.recorded.counts["dropped"]))

    def exposition(self) -> tuple[bytes, str]:
        """The text format and its content type."""
        self.recorded.spread()
        return generate_latest(self.registry), CONTENT_TYPE_LATEST


class _AuditCollector(Collector):
    def __init__(self, counts: AuditCounts, dropped: Counts) -> None:
        self._counts = counts
        self._dropped = dropped

    def collect(self) -> Iterator[Metric]:
        records = CounterMetricFamily(
            "llm_audit_records", "Audit records by what became of them.", labels=("result",)
        )
        records.add_metric(("written",), self._counts.written)
        elsewhere = sum(count for _, count in self._dropped.items())
        records.add_metric(("dropped",), self._counts.dropped + elsewhere)
        yield records
        yield CounterMetricFamily(
            "llm_audit_failures", "Errors while writing audit records.", value=self._counts.failures
        )
        yield GaugeMetricFamily(
            "llm_audit_pending", "Audit records that wait to be written.", value=self._counts.pending
        )

"""What is counted, as Prometheus metrics on a registry of our own.

The recorder is called on the decision path and only adds to tallies; collectors make families of them when
Prometheus asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

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
from extproc.model.commands import RecordDecision, RecordPass, RecordReject
from extproc.tally import BucketsBy, Counts

MAX_UNSPREAD = 4096
"""Different decisions counted before they are added to the series."""

DECISION_BUCKETS_S = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1)

TOKEN_BUCKETS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)


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
        self._requests = self._counts("llm_requests", "Decided requests.", "dialect", "tier", "class")
        self._changes = self._counts("llm_changes", "Fields changed by a rule.", "field", "rule")
        self._passed = self._counts("llm_passed", "Requests passed untouched.", "reason")
        self._rejections = self._counts("llm_rejections", "Rejected requests.", "reason", "status")
        self._streams = self._counts("llm_streams", "Ended ext_proc streams.", "outcome")
        self._reloads = self._counts("llm_config_reloads", "Configuration reloads.", "result")
        self._granted = self._buckets("llm_granted_tokens", "Granted output length.", TOKEN_BUCKETS, "tier")
        decision = self._buckets("llm_decision_seconds", "Time to decide.", DECISION_BUCKETS_S)
        self._decision = decision.at(())
        self._open = 0
        self._decided: dict[int, list[Any]] = {}
        self._gauge("llm_streams_open", "Open ext_proc streams.").set_function(lambda: self._open)
        self._generation = self._gauge("llm_config_generation", "Generation of the current snapshot.")
        self._last_reload = self._gauge("llm_config_last_reload_success", "1 = applied, 0 = refused.")
        self._last_reload.set(1)
        self._waiting = self._gauge("llm_config_waiting_for_restart", "Changed keys that need a restart.")
        self._set = self._gauge("llm_parameter_set_info", "The active parameter set.", "name", "version")
        self._gauge("llm_build_info", "The running version.", "version").labels(version).set(1)

    def _counts(self, name: str, text: str, *labels: str) -> Counts:
        return collectors.counts(self.registry, name, text, labels)

    def _buckets(self, name: str, text: str, bounds: tuple[float, ...], *labels: str) -> BucketsBy:
        return collectors.buckets(self.registry, name, text, bounds, labels)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def decided(self, record: RecordDecision) -> None:
        """Equal requests share one decision, so it is the decision that is counted until somebody asks."""
        known = self._decided.get(id(record.decision))
        if known is not None:
            known[1] += 1
            return
        if len(self._decided) >= MAX_UNSPREAD:
            self._spread()
        self._decided[id(record.decision)] = [record, 1]

    def _spread(self) -> None:
        """Add what was decided to the series."""
        for record, count in self._decided.values():
            decision = record.decision
            self._requests.add((record.target.dialect or "none", decision.tier, decision.request_class), count)
            for change in decision.changes:
                self._changes.add((change.field, change.rule), count)
            if decision.max_tokens is not None:
                self._granted.at((decision.tier,)).observe(decision.max_tokens, count)
        self._decided.clear()

    def passed(self, record: RecordPass) -> None:
        self._passed.add((record.reason,))

    def rejected(self, record: RecordReject) -> None:
        self._rejections.add((record.reason, str(record.status)))

    def decision_seconds(self, seconds: float) -> None:
        self._decision.observe(seconds)

    def stream_opened(self) -> None:
        self._open += 1

    def stream_ended(self, outcome: str) -> None:
        self._open -= 1
        self._streams.add((outcome,))

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
        self.registry.register(_AuditCollector(counts))

    def exposition(self) -> tuple[bytes, str]:
        """The text format and its content type."""
        self._spread()
        return generate_latest(self.registry), CONTENT_TYPE_LATEST


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

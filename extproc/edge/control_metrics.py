"""The control plane as Prometheus metrics: weights and their terms, scraping, health, pushes.

What there is one of per endpoint is made when Prometheus asks, out of the last tick: an endpoint that left leaves
no series behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from statistics import median_low

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from extproc.engines.failures import Failure
from extproc.loops.reconcile import PoolReport, Report
from extproc.loops.telemetry import Target
from extproc.model.topology import Endpoint
from extproc.model.xds import Kind
from extproc.scoring.values import EndpointWeight, Freshness

MAX_ENDPOINT_SERIES = 2000
"""Endpoints with series of their own; the pools' own series go on for more."""

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
BY_ENDPOINT = ("pool", "endpoint")

Terms = Callable[[str, Endpoint], Mapping[str, float]]
"""What sources say of a pool's endpoint, by term; without what is too old."""


def no_terms(_: str, __: Endpoint) -> Mapping[str, float]:
    return {}


class ControlMetrics:
    """Used from the event loop's thread only."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.report: Report | None = None
        self._generation = 0
        self.terms: Terms = no_terms
        registry.register(_LastTick(self))
        self._about_sources(registry)
        self._about_ticks(registry)
        self._about_envoys(registry)

    def _about_sources(self, registry: CollectorRegistry) -> None:
        self._scrapes = Histogram(
            "llm_scrape_duration_seconds", "One look at a source.", ("source",), registry=registry, buckets=SECONDS
        )
        self._scrape_failures = Counter(
            "llm_scrape_failures", "Looks that failed.", ("source", "cause"), registry=registry
        )
        self._endpoint_failures = Counter(
            "llm_endpoint_source_failures",
            "A file or a name of endpoints that could not be read.",
            registry=registry,
        )

    def _about_ticks(self, registry: CollectorRegistry) -> None:
        self._ticks = Histogram(
            "llm_tick_duration_seconds", "Weighing, building and checking.", registry=registry, buckets=SECONDS
        )
        self._age_at_push = Histogram(
            "llm_sample_to_push_seconds",
            "Age of a pool's median youngest reading when what it led to was published.",
            ("pool",),
            registry=registry,
            buckets=SECONDS,
        )
        self._failed_ticks = Counter("llm_ticks_failed", "Ticks that a bug ended.", registry=registry)
        self._saturated = Counter(
            "llm_pool_saturated",
            "Ticks in which every endpoint of a pool scored zero.",
            ("pool",),
            registry=registry,
        )
        self._unhealthy = Counter(
            "llm_pool_unhealthy",
            "Ticks in which every endpoint of a pool failed its checks.",
            ("pool",),
            registry=registry,
        )
        self._refused = Counter("llm_snapshots_refused", "Resources that were not published.", registry=registry)

    def _about_envoys(self, registry: CollectorRegistry) -> None:
        self._pushes = Counter("llm_xds_pushes", "Responses sent to Envoy.", ("type",), registry=registry)
        self._acks = Counter("llm_xds_acks", "Responses Envoy accepted.", ("type",), registry=registry)
        self._nacks = Counter("llm_xds_nacks", "Responses Envoy refused.", ("type",), registry=registry)
        self._delay = Histogram(
            "llm_xds_push_seconds",
            "From what was published to Envoy's answer.",
            ("type",),
            registry=registry,
            buckets=SECONDS,
        )
        self._streams = Gauge("llm_xds_streams_open", "Envoys that follow.", registry=registry)
        self._file_failures = Counter(
            "llm_xds_file_failures", "Last-good files for Envoy that were not written.", registry=registry
        )

    # ── what the loops tell ──────────────────────────────────────────────────────────────────────

    def scraped(self, target: Target, duration_s: float, failure: Failure | None) -> None:
        self._scrapes.labels(target.source.value).observe(duration_s)
        if failure is not None:
            self._scrape_failures.labels(target.source.value, failure.cause.value).inc()

    def endpoints_failed(self, _: str, __: str) -> None:
        self._endpoint_failures.inc()

    def ticked(self, report: Report, duration_s: float) -> None:
        self.report = report
        self._ticks.observe(duration_s)
        for pool in report.pools:
            if pool.weights.saturated:
                self._saturated.labels(pool.name).inc()
            if pool.unhealthy:
                self._unhealthy.labels(pool.name).inc()
        if report.problems:
            self._refused.inc()
        if report.generation > self._generation:
            self._generation = report.generation
            self._published(report)

    def _published(self, report: Report) -> None:
        for pool in report.pools:
            if ages := list(_ages(pool)):
                self._age_at_push.labels(pool.name).observe(median_low(ages))

    def tick_failed(self) -> None:
        self._failed_ticks.inc()

    def file_failed(self) -> None:
        """A last-good file for Envoy was not written."""
        self._file_failures.inc()

    # ── what the ADS edge tells ──────────────────────────────────────────────────────────────────

    def pushed(self, kind: Kind) -> None:
        self._pushes.labels(kind.name.lower()).inc()

    def acked(self, kind: Kind, seconds: float) -> None:
        self._acks.labels(kind.name.lower()).inc()
        self._delay.labels(kind.name.lower()).observe(seconds)

    def nacked(self, kind: Kind, _: str, __: str) -> None:
        self._nacks.labels(kind.name.lower()).inc()

    def stream_opened(self) -> None:
        self._streams.inc()

    def stream_ended(self) -> None:
        self._streams.dec()


class _LastTick(Collector):
    def __init__(self, metrics: ControlMetrics) -> None:
        self._metrics = metrics

    def describe(self) -> Iterator[Metric]:
        return iter(_families().values())

    def collect(self) -> Iterator[Metric]:
        families = _families()
        report = self._metrics.report
        for pool, endpoint, place in _rows(report.pools if report else ()):
            labels = [pool.name, endpoint.key]
            for term, value in self._metrics.terms(pool.name, place).items():
                families["telemetry"].add_metric([*labels, term], value)
            families["weight"].add_metric(labels, endpoint.weight)
            families["draining"].add_metric(labels, float(endpoint.draining))
            if endpoint.score is not None and pool.measured:
                families["score"].add_metric(labels, endpoint.score)
            _add_terms(families, labels, endpoint)
        yield from families.values()


def _ages(pool: PoolReport) -> Iterator[float]:
    """Of the youngest reading of each endpoint that has one."""
    for endpoint in pool.weights.weights:
        ages = [term.age_s for term in endpoint.terms if term.age_s is not None]
        if ages:
            yield min(ages)


def _add_terms(families: dict[str, GaugeMetricFamily], labels: list[str], endpoint: EndpointWeight) -> None:
    stale = any(term.freshness in (Freshness.FADING, Freshness.NEUTRAL) for term in endpoint.terms)
    families["stale"].add_metric(labels, float(stale))
    for term in endpoint.terms:
        if term.utility is not None:
            families["term"].add_metric([*labels, term.term.value], term.utility)
        if term.reading is not None:
            families["reading"].add_metric([*labels, term.term.value], term.reading)
        if term.age_s is not None:
            families["age"].add_metric([*labels, term.term.value], term.age_s)


def _rows(pools: tuple[PoolReport, ...]) -> Iterator[tuple[PoolReport, EndpointWeight, Endpoint]]:
    rows = (
        (pool, weight, endpoint)
        for pool in pools
        for weight, endpoint in zip(pool.weights.weights, pool.endpoints, strict=True)
    )
    for _, row in zip(range(MAX_ENDPOINT_SERIES), rows, strict=False):
        yield row


def _families() -> dict[str, GaugeMetricFamily]:
    by_term = [*BY_ENDPOINT, "term"]
    return {
        "weight": GaugeMetricFamily("llm_endpoint_weight", "Share of the pool's traffic.", labels=BY_ENDPOINT),
        "draining": GaugeMetricFamily("llm_endpoint_draining", "1 = gets no new request.", labels=BY_ENDPOINT),
        "score": GaugeMetricFamily("llm_endpoint_score", "In [0, 1], higher is better.", labels=BY_ENDPOINT),
        "term": GaugeMetricFamily("llm_endpoint_term", "A term of the score, in [0, 1].", labels=by_term),
        "reading": GaugeMetricFamily("llm_endpoint_reading", "What a term was made from.", labels=by_term),
        "telemetry": GaugeMetricFamily(
            "llm_endpoint_telemetry",
            "What its page and other sources say: shares in [0, 1], requests, seconds.",
            labels=by_term,
        ),
        "age": GaugeMetricFamily("llm_telemetry_age_seconds", "Age of a term's reading.", labels=by_term),
        "stale": GaugeMetricFamily(
            "llm_telemetry_stale", "1 = a term is too old to be believed.", labels=BY_ENDPOINT
        ),
    }

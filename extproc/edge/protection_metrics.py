"""The protection loop as Prometheus metrics, made when somebody asks, out of the last looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from extproc.loops.parameter_history import ParameterHistory
from extproc.loops.protection import Protector
from extproc.model.drift import Drift, Verdict
from extproc.protect.breaker import State


class ProtectionMetrics(Collector):
    """Registers itself. `protector` is there from the first look on."""

    def __init__(
        self, registry: CollectorRegistry, protector: Callable[[], Protector | None], history: ParameterHistory
    ) -> None:
        self._protector = protector
        self._history = history
        registry.register(self)

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        yield _gauge("llm_parameters_pinned", "1 = the active set stays.", float(self._history.history.pinned))
        yield _gauge(
            "llm_parameter_history_unsaved", "1 = the disk does not take it.", float(self._history.unsaved)
        )
        protector = self._protector()
        if protector is not None:
            yield from _breakers(protector)
            yield from _pools(protector)
            yield from _slo(protector)
            yield from _lengths(protector)
            yield from _drift(protector.drift.status.verdicts)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)


def _breakers(protector: Protector) -> Iterator[Metric]:
    states = GaugeMetricFamily("llm_breaker_state", "1 = in this state.", labels=("breaker", "state"))
    trips = GaugeMetricFamily("llm_breaker_trips_in_a_row", "Each doubles the back-off.", labels=("breaker",))
    for name, breaker in protector.breakers.states.items():
        for state in State:
            states.add_metric((name, state.value), float(breaker.state is state))
        trips.add_metric((name,), breaker.trips)
    yield states
    yield trips
    yield _gauge("llm_breaker_panic", "1 = every pool is open, one serves.", float(bool(protector.status.panic)))


def _pools(protector: Protector) -> Iterator[Metric]:
    loads = GaugeMetricFamily("llm_pool_load", "Of what it can bear; absent = not known.", labels=("pool",))
    degraded = GaugeMetricFamily("llm_pool_degraded", "1 = its answers are cheaper.", labels=("pool",))
    for name, load in protector.status.loads.items():
        if load is not None:
            loads.add_metric((name,), load)
        degraded.add_metric((name,), float(name in protector.status.protection.degraded))
    yield loads
    yield degraded


def _slo(protector: Protector) -> Iterator[Metric]:
    slo = protector.status.slo
    yield _gauge("llm_slo_broken_endpoints", "Endpoints that break the SLO.", len(slo.broken))
    yield _gauge("llm_slo_slow_mean_endpoints", "Their mean is above its objective.", len(slo.slow_mean))
    yield _gauge("llm_slo_affected_share", "Of endpoints: the SLO broken, or drift.", slo.affected_share)
    yield _gauge("llm_slo_breached_seconds", "Of the rollback's window.", slo.breached_s)


def _lengths(protector: Protector) -> Iterator[Metric]:
    granted = GaugeMetricFamily("llm_scenario_length_tokens", "Learnt output length.", labels=("scenario",))
    counted = GaugeMetricFamily("llm_scenario_length_samples", "Answers it was learnt from.", labels=("scenario",))
    for name, estimate in protector.lengths.estimates().items():
        granted.add_metric((name,), estimate.tokens)
        counted.add_metric((name,), estimate.samples)
    yield granted
    yield counted


def _drift(verdicts: tuple[Verdict, ...]) -> Iterator[Metric]:
    labels = ("pool", "parameter_set", "tier")
    distance = GaugeMetricFamily("llm_drift_d", "Kolmogorov-Smirnov distance, of slower alone.", labels=labels)
    chance = GaugeMetricFamily("llm_drift_p", "Corrected for keys and looks of a day.", labels=labels)
    rise = GaugeMetricFamily("llm_drift_p95_rise_seconds", "Against the baseline.", labels=labels)
    states = GaugeMetricFamily("llm_drift_state", "1 = in this state.", labels=(*labels, "state"))
    for verdict in verdicts:
        key = verdict.key
        names = (key.pool, key.parameter_set, key.tier or "none")
        for family, value in ((distance, verdict.d), (chance, verdict.p), (rise, verdict.p95_delta_s)):
            if value is not None:
                family.add_metric(names, value)
        for state in Drift:
            states.add_metric((*names, state.value), float(verdict.state is state))
    yield from (distance, chance, rise, states)

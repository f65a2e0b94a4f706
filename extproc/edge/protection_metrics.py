"""The protection loop as Prometheus metrics, made when somebody asks, out of the last looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

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
        return iter(families().values())

    def collect(self) -> Iterator[Metric]:
        made = families()
        made["pinned"].add_metric((), float(self._history.history.pinned))
        made["unsaved"].add_metric((), float(self._history.unsaved))
        protector = self._protector()
        if protector is not None:
            _breakers(made, protector)
            _pools(made, protector)
            _slo(made, protector)
            _lengths(made, protector)
            _drift(made, protector.drift.status.verdicts)
        yield from made.values()


def families() -> dict[str, GaugeMetricFamily]:
    """All there are, without a sample."""
    key = ("pool", "parameter_set", "tier")
    return {
        "pinned": _gauge("llm_parameters_pinned", "1 = the active set stays."),
        "unsaved": _gauge("llm_parameter_history_unsaved", "1 = the disk does not take it."),
        "breaker": _gauge("llm_breaker_state", "1 = in this state.", "breaker", "state"),
        "trips": _gauge("llm_breaker_trips_in_a_row", "Each doubles the back-off.", "breaker"),
        "panic": _gauge("llm_breaker_panic", "1 = no pool is closed, one serves."),
        "load": _gauge("llm_pool_load", "Of what it can bear; absent = not known.", "pool"),
        "degraded": _gauge("llm_pool_degraded", "1 = its answers are cheaper.", "pool"),
        "broken": _gauge("llm_slo_broken_endpoints", "Endpoints that break the SLO."),
        "slow_mean": _gauge("llm_slo_slow_mean_endpoints", "Their mean is above its objective."),
        "affected": _gauge("llm_slo_affected_share", "Of endpoints: the SLO broken, or drift."),
        "breached": _gauge("llm_slo_breached_seconds", "Of the rollback's window."),
        "tokens": _gauge("llm_scenario_length_tokens", "Learnt output length.", "scenario"),
        "samples": _gauge("llm_scenario_length_samples", "Answers it was learnt from.", "scenario"),
        "d": _gauge("llm_drift_d", "Kolmogorov-Smirnov distance, of slower alone.", *key),
        "p": _gauge("llm_drift_p", "Corrected for keys and looks of a day.", *key),
        "rise": _gauge("llm_drift_p95_rise_seconds", "Against the baseline.", *key),
        "drift": _gauge("llm_drift_state", "1 = in this state.", *key, "state"),
    }


Made = Mapping[str, GaugeMetricFamily]


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=labels)


def _breakers(made: Made, protector: Protector) -> None:
    for name, breaker in protector.breakers.states.items():
        for state in State:
            made["breaker"].add_metric((name, state.value), float(breaker.state is state))
        made["trips"].add_metric((name,), breaker.trips)
    made["panic"].add_metric((), float(bool(protector.status.panic)))


def _pools(made: Made, protector: Protector) -> None:
    for name, load in protector.status.loads.items():
        if load is not None:
            made["load"].add_metric((name,), load)
        made["degraded"].add_metric((name,), float(name in protector.status.protection.degraded))


def _slo(made: Made, protector: Protector) -> None:
    slo = protector.status.slo
    made["broken"].add_metric((), len(slo.broken))
    made["slow_mean"].add_metric((), len(slo.slow_mean))
    made["affected"].add_metric((), slo.affected_share)
    made["breached"].add_metric((), slo.breached_s)


def _lengths(made: Made, protector: Protector) -> None:
    for name, estimate in protector.lengths.estimates().items():
        made["tokens"].add_metric((name,), estimate.tokens)
        made["samples"].add_metric((name,), estimate.samples)


def _drift(made: Made, verdicts: tuple[Verdict, ...]) -> None:
    for verdict in verdicts:
        key = verdict.key
        names = (key.pool, key.parameter_set, key.tier or "none")
        for name, value in (("d", verdict.d), ("p", verdict.p), ("rise", verdict.p95_delta_s)):
            if value is not None:
                made[name].add_metric(names, value)
        for state in Drift:
            made["drift"].add_metric((*names, state.value), float(verdict.state is state))

"""What is worth a page, as Prometheus rules made from the configuration: recording rules first, then alerts.

Engines' own metrics are read where Prometheus scrapes them too; a rule whose metrics are not there stays silent.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from extproc.model.config import Config

Share = Annotated[float, Field(gt=0, le=1)]
Positive = Annotated[float, Field(gt=0, le=3600)]


class Pair(Config):
    """Two thresholds: worth a look, and worth getting up."""

    warning: float
    critical: float

    @model_validator(mode="after")
    def _ordered(self) -> Pair:
        if not 0 < self.warning <= self.critical:
            raise ValueError("0 < warning <= critical")
        return self


IN_FLIGHT = 2
"""Requests at once, on average, below which an engine has nothing to batch."""

INHIBIT = {
    "source_matchers": ['severity="critical"'],
    "target_matchers": ['severity="warning"'],
    "equal": ["alertname", "pool", "endpoint", "instance", "model", "model_name"],
}
"""For Alertmanager: what is critical is not told as a warning too."""


class AlertsConfig(Config):
    """Thresholds of `extproc alert-rules`. Seconds, and shares in [0, 1]."""

    window_s: Annotated[int, Field(ge=10, le=86_400)]
    for_s: Annotated[int, Field(ge=0, le=86_400)]
    p99_s: Pair
    over_1k_tokens: Share
    batch_empty_runs: Pair
    spec_rejection: Pair
    fragmentation: Pair


def groups(config: AlertsConfig) -> dict[str, Any]:
    """The content of a rule file."""
    return {
        "groups": [
            {"name": "llm-recording", "rules": [*_recordings(f"{config.window_s}s")]},
            {"name": "llm-latency", "rules": _latency(config)},
            {"name": "llm-engines", "rules": _engines(config)},
            {"name": "llm-protection", "rules": _protection(config)},
            {"name": "llm-control", "rules": _control(config)},
        ]
    }


def _record(name: str, expression: str, **labels: str) -> dict[str, Any]:
    return {"record": name, "expr": expression} | ({"labels": labels} if labels else {})


def _grew(series: str, by: str, window: str) -> str:
    """Whether a counter did. One that begins with its first event grows by nothing in Prometheus' eyes."""
    return (
        f"sum by ({by}) (increase({series}[{window}])) > 0 "
        f"or sum by ({by}) ({series} unless {series} offset {window}) > 0"
    )


def _recordings(window: str) -> list[dict[str, Any]]:
    # A client's mistake is answered at once, by nobody's engine.
    answered = f'llm_request_duration_seconds_bucket{{status!~"cancelled|4xx"}}[{window}]'
    quantiles = [
        _record(
            f"llm:request_duration_seconds:{name}",
            f"histogram_quantile({share}, sum by (le, pool) (rate({answered})))",
        )
        for name, share in (("p50", "0.5"), ("p95", "0.95"), ("p99", "0.99"), ("p999", "0.999"))
    ]
    drafted, taken = (f"vllm:spec_decode_num_{kind}_tokens_total" for kind in ("draft", "accepted"))
    inferred, executed = (f"rate(nv_inference_{kind}[{window}])" for kind in ("count", "exec_count"))
    steps = "vllm:iteration_tokens_total"
    return [
        *quantiles,
        _record("llm:requests:rate", f"sum by (tier, class) (rate(llm_requests_total[{window}]))"),
        _record(
            "llm:request_errors:ratio",
            f'sum by (pool) (rate(llm_request_outcomes_total{{outcome=~"error|overflow"}}[{window}])) '
            f"/ sum by (pool) (rate(llm_request_outcomes_total[{window}]))",
        ),
        _record(
            "llm:requests_over_1k_tokens:ratio",
            f"sum(rate(llm_requests_over_1k_tokens_total[{window}])) "
            f"/ sum(rate(llm_requests_with_usage_total[{window}]))",
        ),
        _record(
            "llm:spec_rejection:ratio",
            f"1 - sum by (instance, model_name) (rate({taken}[{window}])) "
            f"/ sum by (instance, model_name) (rate({drafted}[{window}]))",
        ),
        _record(
            "llm:batch_size:mean",
            f"sum by (instance, model) ({inferred}) / sum by (instance, model) ({executed})",
        ),
        _record(
            "llm:requests_in_flight:mean",
            f"sum by (instance, model) (rate(nv_inference_request_duration_us[{window}])) / 1e6",
            engine="triton",
        ),
        _record(
            "llm:requests_in_flight:mean",
            " + ".join(
                f"sum by (instance, model_name) (avg_over_time(vllm:num_requests_{state}[{window}]))"
                for state in ("running", "waiting")
            ),
            engine="vllm",
        ),
        # Of batches of one request alone there are at least as many as the mean is short of two.
        _record("llm:batch_empty_runs:ratio", "clamp_min(2 - llm:batch_size:mean, 0)", engine="triton"),
        _record(
            "llm:batch_empty_runs:ratio",
            f'sum by (instance, model_name) (rate({steps}_bucket{{le="1.0"}}[{window}])) '
            f"/ sum by (instance, model_name) (rate({steps}_count[{window}]))",
            engine="vllm",
        ),
        _record("llm:sm_active:ratio", 'max by (pool, endpoint) (llm_endpoint_telemetry{term="sm_utilisation"})'),
    ]


def _alert(
    name: str, expression: str, severity: str, for_s: int, summary: str, *, runbook: str = ""
) -> dict[str, Any]:
    annotations = {"summary": summary}
    if runbook:
        annotations["runbook"] = f"docs/runbooks.md#{runbook}"
    rule: dict[str, Any] = {"alert": name, "expr": expression}
    if for_s:
        rule["for"] = f"{for_s}s"
    return rule | {"labels": {"severity": severity}, "annotations": annotations}


def _pair(
    name: str, expression: str, bounds: Pair, for_s: int, summary: str, *, runbook: str = "", condition: str = ""
) -> list[dict[str, Any]]:
    """The warning holds on beyond the critical threshold: a value that swings around it would begin `for` anew each
    time. Alertmanager keeps the lesser one back (INHIBIT). `condition`: what has to hold besides."""
    return [
        _alert(name, f"{expression} > {bound}{condition}", severity, for_s, summary, runbook=runbook)
        for severity, bound in (("warning", bounds.warning), ("critical", bounds.critical))
    ]


def _latency(config: AlertsConfig) -> list[dict[str, Any]]:
    return [
        *_pair(
            "LlmP99High",
            "llm:request_duration_seconds:p99",
            config.p99_s,
            config.for_s,
            "P99 of pool {{ $labels.pool }} is {{ $value | humanizeDuration }}",
        ),
        _alert(
            "LlmManyLongRequests",
            f"llm:requests_over_1k_tokens:ratio > {config.over_1k_tokens}",
            "warning",
            config.for_s,
            "{{ $value | humanizePercentage }} of requests have more than 1,000 tokens",
        ),
    ]


_BATCHABLE = (
    f" and llm:requests_in_flight:mean >= {IN_FLIGHT}"
    ' and (llm:batch_empty_runs:ratio{engine!="triton"} or llm:batch_empty_runs:ratio'
    " and on (instance, model) max_over_time(llm:batch_size:mean[1d]) > 1)"
)
"""There is something to batch, and a Triton model can: one that never had a batch in a day is taken for one that
takes single requests only."""


def _engines(config: AlertsConfig) -> list[dict[str, Any]]:
    fragmentation = 'max by (pool, endpoint) (llm_endpoint_telemetry{term="fragmentation"})'
    return [
        *_pair(
            "LlmBatchEmptyRuns",
            "llm:batch_empty_runs:ratio",
            config.batch_empty_runs,
            config.for_s,
            "{{ $value | humanizePercentage }} of the batches of {{ $labels.instance }} are empty",
            runbook="batch-timeout",
            condition=_BATCHABLE,
        ),
        *_pair(
            "LlmSpecRejection",
            "llm:spec_rejection:ratio",
            config.spec_rejection,
            config.for_s,
            "{{ $labels.instance }} rejects {{ $value | humanizePercentage }} of its drafted tokens",
        ),
        *_pair(
            "LlmFragmentation",
            fragmentation,
            config.fragmentation,
            config.for_s,
            "{{ $value | humanizePercentage }} of the memory of {{ $labels.endpoint }} is fragmented",
            runbook="memory-leak",
        ),
        _alert(
            "LlmTelemetryStale",
            "max by (pool, endpoint) (llm_telemetry_stale) == 1",
            "warning",
            config.for_s,
            "telemetry of {{ $labels.endpoint }} in pool {{ $labels.pool }} is too old to be believed",
        ),
    ]


def _protection(config: AlertsConfig) -> list[dict[str, Any]]:
    return [
        _alert(
            "LlmDrift",
            'max by (pool, parameter_set, tier) (llm_drift_state{state="drift"}) == 1',
            "warning",
            0,
            "latency of {{ $labels.pool }}, tier {{ $labels.tier }}, has drifted from its baseline",
        ),
        _alert(
            "LlmBreakerOpen",
            'max by (breaker) (llm_breaker_state{state="open"}) == 1',
            "critical",
            0,
            "breaker {{ $labels.breaker }} is open",
        ),
        _alert("LlmPanic", "max(llm_breaker_panic) == 1", "critical", 0, "no pool is closed; one serves"),
        _alert(
            "LlmRolledBack",
            _grew('llm_incidents_total{kind="parameters",state="rolled_back"}', "subject", f"{config.window_s}s"),
            "critical",
            0,
            "a parameter set was rolled back: /events says which, and why",
        ),
    ]


def _control(config: AlertsConfig) -> list[dict[str, Any]]:
    window = f"{config.window_s}s"
    return [
        _alert(
            "LlmEnvoyRefuses",
            _grew("llm_xds_nacks_total", "type", window),
            "critical",
            0,
            "Envoy refuses our {{ $labels.type }} resources",
        ),
        _alert(
            "LlmConfigRefused",
            "min(llm_config_last_reload_success) == 0",
            "warning",
            config.for_s,
            "the config on disk is not in force",
        ),
        _alert(
            "LlmAuditDropped",
            f'sum(increase(llm_audit_records_total{{result="dropped"}}[{window}])) > 0',
            "warning",
            0,
            "audit records are lost: the disk is slower than the traffic",
        ),
        _alert(
            "LlmSidecarDown", 'up{job="extproc"} == 0', "critical", config.for_s, "the sidecar is not answering"
        ),
    ]

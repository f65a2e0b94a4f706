"""Grafana dashboards, as JSON made by code: one each for "is it fine?", routing, engines, parameters, drift and
breakers.

Pure: a page is rows of panels, a panel is queries over the metrics that the sidecar shows (or the rules record).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

SCHEMA_VERSION = 39
WIDTH = 24
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
EVERY = "$__rate_interval"


class Query(Struct, frozen=True):
    """PromQL, and what a line of its answer is called."""

    expr: str
    legend: str = ""


class Panel(Struct, frozen=True):
    """`kind`: timeseries, stat, table or bargauge; `unit` as Grafana names it."""

    title: str
    queries: tuple[Query, ...]
    kind: str = "timeseries"
    unit: str = "short"
    width: int = 8
    height: int = 8
    text: str = ""
    red_from: float | None = None
    none: str = ""
    """What stands there where nothing was counted yet."""


class Page(Struct, frozen=True):
    uid: str
    title: str
    panels: tuple[Panel, ...]


def _one(title: str, expr: str, legend: str = "", **more: Any) -> Panel:
    return Panel(title, (Query(expr, legend),), **more)


def _p(share: str, family: str, by: str) -> str:
    bucket = f"sum by (le, {by}) (rate({family}_bucket[{EVERY}]))"
    return f"histogram_quantile({share}, {bucket})"


FINE = Page(
    "llm-fine",
    "Is it fine?",
    (
        _one(
            "requests a second",
            f"sum(rate(llm_requests_total[{EVERY}]))",
            kind="stat",
            width=4,
            height=4,
            unit="reqps",
        ),
        _one(
            "P99", "max(llm:request_duration_seconds:p99)", kind="stat", width=4, height=4, unit="s", red_from=2.0
        ),
        _one(
            "errors",
            f'sum(rate(llm_request_outcomes_total{{outcome=~"error|overflow"}}[{EVERY}])) '
            f"/ sum(rate(llm_request_outcomes_total[{EVERY}]))",
            kind="stat",
            width=4,
            height=4,
            none="0 %",
            unit="percentunit",
            red_from=0.05,
        ),
        _one("open breakers", 'sum(llm_breaker_state{state="open"})', kind="stat", width=4, height=4, red_from=1),
        _one(
            "drifting",
            'sum(llm_drift_state{state="drift"})',
            kind="stat",
            width=4,
            height=4,
            none="0",
            red_from=1,
        ),
        _one(
            "alerts firing",
            'count(ALERTS{alertstate="firing"})',
            kind="stat",
            width=4,
            height=4,
            none="0",
            red_from=1,
        ),
        _one("requests by tier", f"sum by (tier) (rate(llm_requests_total[{EVERY}]))", "{{tier}}", unit="reqps"),
        _one("requests by class", f"sum by (class) (rate(llm_requests_total[{EVERY}]))", "{{class}}", unit="reqps"),
        _one(
            "how requests ended",
            f"sum by (outcome) (rate(llm_request_outcomes_total[{EVERY}]))",
            "{{outcome}}",
            unit="reqps",
        ),
        Panel(
            "time to the last byte",
            tuple(
                Query(f"max(llm:request_duration_seconds:{p})", p.upper()) for p in ("p50", "p95", "p99", "p999")
            ),
            unit="s",
        ),
        _one(
            "time to the first byte, P95",
            _p("0.95", "llm_time_to_first_byte_seconds", "pool"),
            "{{pool}}",
            unit="s",
        ),
        Panel(
            "what the sidecar adds",
            (
                Query(f"histogram_quantile(0.5, sum by (le) (rate(llm_decision_seconds_bucket[{EVERY}])))", "P50"),
                Query(f"histogram_quantile(0.99, sum by (le) (rate(llm_decision_seconds_bucket[{EVERY}])))", "P99"),
            ),
            unit="s",
        ),
        _one("passed unread", f"sum by (reason) (rate(llm_passed_total[{EVERY}]))", "{{reason}}", unit="reqps"),
        _one("rejected", f"sum by (reason) (rate(llm_rejections_total[{EVERY}]))", "{{reason}}", unit="reqps"),
        _one(
            "ext_proc streams that ended",
            f"sum by (outcome) (rate(llm_streams_total[{EVERY}]))",
            "{{outcome}}",
            unit="reqps",
        ),
    ),
)

ROUTING = Page(
    "llm-routing",
    "Routing",
    (
        _one("weight by endpoint", "llm_endpoint_weight", "{{pool}} {{endpoint}}", width=12),
        _one("score by endpoint", "llm_endpoint_score", "{{pool}} {{endpoint}}", width=12),
        _one("what scores are made of", "llm_endpoint_term", "{{endpoint}} {{term}}", width=12),
        _one("readings", "llm_endpoint_reading", "{{endpoint}} {{term}}", width=12),
        _one("P99 by pool", "llm:request_duration_seconds:p99", "{{pool}}", unit="s"),
        _one("age of telemetry", "max by (endpoint) (llm_telemetry_age_seconds)", "{{endpoint}}", unit="s"),
        _one("stale telemetry", "sum by (pool) (llm_telemetry_stale)", "{{pool}}"),
        _one("scrape time, P95", _p("0.95", "llm_scrape_duration_seconds", "source"), "{{source}}", unit="s"),
        _one("pushes to Envoy", f"sum by (type) (rate(llm_xds_pushes_total[{EVERY}]))", "{{type}}"),
        _one("Envoy's answer, P95", _p("0.95", "llm_xds_push_seconds", "type"), "{{type}}", unit="s"),
        _one("Envoys that follow", "llm_xds_streams_open", kind="stat"),
        _one("load of pools", "llm_pool_load", "{{pool}}"),
        _one(
            "tick, P95",
            "histogram_quantile(0.95, sum by (le) (rate(llm_tick_duration_seconds_bucket[5m])))",
            unit="s",
        ),
    ),
)

ENGINES = Page(
    "llm-engines",
    "Engines",
    (
        _one("mean batch size", "llm:batch_size:mean", "{{instance}} {{model}}", width=12),
        _one(
            "batches of one request",
            "llm:batch_empty_runs:ratio",
            "{{instance}} {{model}}{{model_name}}",
            width=12,
            unit="percentunit",
            red_from=0.25,
        ),
        _one("requests in flight", "llm:requests_in_flight:mean", "{{instance}} {{model}}{{model_name}}", width=12),
        _one("requests that wait", 'llm_endpoint_telemetry{term="waiting"}', "{{pool}} {{endpoint}}", width=12),
        _one(
            "drafted tokens that are rejected",
            "llm:spec_rejection:ratio",
            "{{instance}} {{model_name}}",
            width=12,
            unit="percentunit",
            red_from=0.6,
        ),
        _one(
            "KV cache in use",
            'llm_endpoint_telemetry{term="kv_usage"}',
            "{{pool}} {{endpoint}}",
            width=12,
            unit="percentunit",
        ),
        _one(
            "share of time in which SMs are active",
            "llm:sm_active:ratio",
            "{{pool}} {{endpoint}}",
            width=12,
            unit="percentunit",
        ),
        _one(
            "fragmentation",
            'llm_endpoint_telemetry{term="fragmentation"}',
            "{{pool}} {{endpoint}}",
            width=12,
            unit="percentunit",
            red_from=0.35,
        ),
    ),
)

PARAMETERS = Page(
    "llm-parameters",
    "Parameters and audit",
    (
        _one("active set", "llm_parameter_set_info", "{{name}}@{{version}}", kind="stat", width=8, height=4),
        _one("config in force", "llm_config_last_reload_success", kind="stat", width=4, height=4),
        _one("generation", "llm_config_generation", kind="stat", width=4, height=4),
        _one(
            "audit records a second",
            f'sum(rate(llm_audit_records_total{{result="written"}}[{EVERY}]))',
            kind="stat",
            width=4,
            height=4,
        ),
        _one(
            "audit records lost",
            'sum(llm_audit_records_total{result="dropped"})',
            kind="stat",
            width=4,
            height=4,
            red_from=1,
        ),
        _one("overrides by field", f"sum by (field) (rate(llm_changes_total[{EVERY}]))", "{{field}}", width=12),
        _one(
            "overrides by rule", f"topk(12, sum by (rule) (rate(llm_changes_total[{EVERY}])))", "{{rule}}", width=12
        ),
        _one(
            "who told the tier",
            f"sum by (source, result) (rate(llm_classified_total[{EVERY}]))",
            "{{source}} {{result}}",
            width=12,
            unit="reqps",
        ),
        Panel(
            "granted tokens",
            (
                Query(
                    f"histogram_quantile(0.5, sum by (le, tier) (rate(llm_granted_tokens_bucket[{EVERY}])))",
                    "P50 {{tier}}",
                ),
                Query(
                    f"histogram_quantile(0.95, sum by (le, tier) (rate(llm_granted_tokens_bucket[{EVERY}])))",
                    "P95 {{tier}}",
                ),
            ),
            width=12,
        ),
        _one("learnt lengths", "llm_scenario_length_tokens", "{{scenario}}", width=12),
        _one("answers they were learnt from", "llm_scenario_length_samples", "{{scenario}}", width=12),
        _one(
            "tokens a second",
            f"sum by (kind, scenario) (rate(llm_tokens_total[{EVERY}]))",
            "{{kind}} {{scenario}}",
            width=12,
        ),
        _one(
            "requests with more than 1,000 tokens",
            "llm:requests_over_1k_tokens:ratio",
            width=12,
            unit="percentunit",
            red_from=0.05,
        ),
        _one(
            "why answers ended",
            f"sum by (reason) (rate(llm_finish_reasons_total[{EVERY}]))",
            "{{reason}}",
            width=12,
        ),
        _one(
            "answers looked at",
            f"sum by (outcome) (rate(llm_usage_answers_total[{EVERY}]))",
            "{{outcome}}",
            width=12,
        ),
    ),
)

PROTECTION = Page(
    "llm-protection",
    "Drift and breakers",
    (
        _one("breakers", 'llm_breaker_state{state!="closed"}', "{{breaker}} {{state}}", width=12),
        _one("trips in a row", "llm_breaker_trips_in_a_row", "{{breaker}}", width=12),
        _one("drift state", "llm_drift_state", "{{pool}} {{tier}} {{state}}", width=12),
        _one(
            "incidents", "sum by (kind, state) (llm_incidents_total)", "{{kind}} {{state}}", width=12, none="none"
        ),
        _one("distance to the baseline, D", "llm_drift_d", "{{pool}} {{tier}}", red_from=0.12),
        _one("p, corrected for all looks of a day", "llm_drift_p", "{{pool}} {{tier}}"),
        _one("P95 above the baseline", "llm_drift_p95_rise_seconds", "{{pool}} {{tier}}", unit="s"),
        _one("endpoints that break the SLO", "llm_slo_broken_endpoints", red_from=1),
        _one("share of endpoints affected", "llm_slo_affected_share", unit="percentunit"),
        _one("seconds of breach", "llm_slo_breached_seconds", unit="s"),
        _one("degraded pools", "llm_pool_degraded", "{{pool}}"),
        _one("parameters pinned", "llm_parameters_pinned", kind="stat"),
        _one("panic", "llm_breaker_panic", kind="stat", red_from=1),
    ),
)

PAGES = (FINE, ROUTING, ENGINES, PARAMETERS, PROTECTION)


def dashboard(page: Page) -> dict[str, Any]:
    """What Grafana imports."""
    return {
        "uid": page.uid,
        "title": f"LLM · {page.title}",
        "tags": ["llm", "extproc"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [_datasource()]},
        "annotations": {"list": []},
        "links": [_link(other) for other in PAGES if other is not page],
        "panels": _placed(page.panels),
    }


def _datasource() -> dict[str, Any]:
    return {
        "name": "datasource",
        "type": "datasource",
        "query": "prometheus",
        "label": "Prometheus",
        "hide": 0,
        "current": {},
    }


def _link(page: Page) -> dict[str, Any]:
    return {"title": page.title, "type": "link", "url": f"/d/{page.uid}", "keepTime": True, "targetBlank": False}


def _placed(panels: Sequence[Panel]) -> list[dict[str, Any]]:
    """From left to right, a new row where there is no room."""
    placed, x, y, tallest = [], 0, 0, 0
    for number, panel in enumerate(panels, 1):
        if x + panel.width > WIDTH:
            x, y, tallest = 0, y + tallest, 0
        placed.append(_panel(number, panel, x, y))
        x, tallest = x + panel.width, max(tallest, panel.height)
    return placed


def _panel(number: int, panel: Panel, x: int, y: int) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.none:
        defaults["noValue"] = panel.none
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.red_from is not None:
        steps.append({"color": "red", "value": panel.red_from})
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": SOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
        "fieldConfig": {
            "defaults": {**defaults, "thresholds": {"mode": "absolute", "steps": steps}},
            "overrides": [],
        },
        "options": {},
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": SOURCE,
                "expr": query.expr,
                "legendFormat": query.legend or "__auto",
                "range": True,
                "instant": False,
            }
            for at, query in enumerate(panel.queries)
        ],
    }

"""Every alert fires when it should and is silent when it should not, by promtool on made-up series."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from extproc import alerts
from extproc.cli.alert_rules import text
from extproc.cli.main import main
from extproc.edge.traffic_metrics import DURATION_BUCKETS_S
from extproc.errors import ConfigError
from extproc.settings import load

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus" / "rules" / "extproc.yml"
CONFIG = load("").alerts
ALERTS = [
    (rule["alert"], rule["labels"]["severity"])
    for group in alerts.groups(CONFIG)["groups"]
    for rule in group["rules"]
    if "alert" in rule
]
STEPS = 60  # of 15 s
AT = "14m"


def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("promtool is not installed: make deps")
    return str(found)


def grows(series: str, per_step: float) -> dict[str, str]:
    return {"series": series, "values": f"0+{per_step}x{STEPS}"}


def stays(series: str, value: float) -> dict[str, str]:
    return {"series": series, "values": f"{value}x{STEPS}"}


def begins(series: str, value: float) -> dict[str, str]:
    """Not there for ten minutes, then at once with its first event, and going on from there."""
    return {"series": series, "values": f"_x40 {value}x{STEPS}"}


def durations(seconds: float) -> list[dict[str, str]]:
    """Requests that all take about so long, as a histogram."""
    bounds = DURATION_BUCKETS_S
    made = [
        grows(
            f'llm_request_duration_seconds_bucket{{pool="big",tier="strict",status="2xx",le="{bound}"}}',
            15 if seconds <= bound else 0,
        )
        for bound in bounds
    ]
    return [
        *made,
        grows('llm_request_duration_seconds_bucket{pool="big",tier="strict",status="2xx",le="+Inf"}', 15),
    ]


def cancelled(seconds: float) -> list[dict[str, str]]:
    return [{**each, "series": each["series"].replace("2xx", "cancelled")} for each in durations(seconds)]


def mistaken(seconds: float) -> list[dict[str, str]]:
    return [{**each, "series": each["series"].replace("2xx", "4xx")} for each in durations(seconds)]


def spec(rejected: float) -> list[dict[str, str]]:
    name = '{instance="vllm:8000",model_name="m"}'
    return [
        grows(f"vllm:spec_decode_num_draft_tokens_total{name}", 100),
        grows(f"vllm:spec_decode_num_accepted_tokens_total{name}", 100 * (1 - rejected)),
    ]


def batches(mean: float, in_flight: float = 4) -> list[dict[str, str]]:
    name = '{instance="triton:8002",model="text",version="1"}'
    return [
        grows(f"nv_inference_count{name}", 100 * mean),
        grows(f"nv_inference_exec_count{name}", 100),
        grows(f"nv_inference_request_duration_us{name}", 15e6 * in_flight),
    ]


def steps(empty: float, in_flight: float = 4) -> list[dict[str, str]]:
    name = 'instance="vllm:8000",model_name="m"'
    return [
        stays(f"vllm:num_requests_running{{{name}}}", in_flight),
        stays(f"vllm:num_requests_waiting{{{name}}}", 0),
        grows(f'vllm:iteration_tokens_total_bucket{{{name},le="1.0"}}', 100 * empty),
        grows(f"vllm:iteration_tokens_total_count{{{name}}}", 100),
    ]


def reading(term: str, value: float) -> list[dict[str, str]]:
    return [stays(f'llm_endpoint_telemetry{{pool="big",endpoint="10.0.0.1:8000",term="{term}"}}', value)]


def swinging(term: str, *values: float) -> list[dict[str, str]]:
    """Another value at each step."""
    (one,) = reading(term, 0)
    return [{**one, "values": " ".join(str(values[step % len(values)]) for step in range(STEPS))}]


LONG = 'llm_requests_over_1k_tokens_total{scenario="general"}', 'llm_requests_with_usage_total{scenario="general"}'
DRIFT = 'llm_drift_state{pool="big",parameter_set="a@1",tier="strict",state="%s"}'
BREAKER = 'llm_breaker_state{breaker="pool/big",state="%s"}'
ROLLED = 'llm_incidents_total{kind="parameters",subject="a@1",state="%s"}'
NACK, AUDIT = 'llm_xds_nacks_total{type="cluster"}', 'llm_audit_records_total{result="dropped"}'

Case = tuple[str, str, list[dict[str, str]], list[list[dict[str, str]]]]
CASES: list[Case] = [
    # alert, severity, what makes it fire, what does not
    # What is read as between two buckets is off by at most their distance: 1.7 s is 1.6 to 1.8.
    ("LlmP99High", "warning", durations(1.7), [durations(0.4), durations(1.5), mistaken(1.8)]),
    ("LlmP99High", "warning", durations(2.5), []),
    ("LlmP99High", "critical", durations(2.5), [durations(1.9), cancelled(4.0)]),
    ("LlmManyLongRequests", "warning", [grows(LONG[0], 6), grows(LONG[1], 100)], [[grows(LONG[0], 4), grows(LONG[1], 100)]]),
    ("LlmBatchEmptyRuns", "warning", batches(1.8), [batches(2.5), steps(0.1), batches(1.8, in_flight=1), batches(1.0)]),
    ("LlmBatchEmptyRuns", "warning", steps(0.3), [steps(0.3, in_flight=1)]),
    ("LlmBatchEmptyRuns", "critical", steps(0.3), [steps(0.2), batches(4.0)]),
    ("LlmBatchEmptyRuns", "critical", batches(1.2), [batches(1.8), batches(1.0), batches(1.2, in_flight=1)]),
    ("LlmSpecRejection", "warning", spec(0.5), [spec(0.3)]),
    ("LlmSpecRejection", "critical", spec(0.7), [spec(0.5)]),
    ("LlmFragmentation", "warning", reading("fragmentation", 0.3), [reading("fragmentation", 0.1), reading("memory", 0.9)]),
    ("LlmFragmentation", "warning", swinging("fragmentation", 0.34, 0.36), [swinging("fragmentation", 0.19, 0.21)]),
    ("LlmFragmentation", "critical", reading("fragmentation", 0.4), [reading("fragmentation", 0.3)]),
    (
        "LlmTelemetryStale",
        "warning",
        [stays('llm_telemetry_stale{pool="big",endpoint="10.0.0.1:8000"}', 1)],
        [[stays('llm_telemetry_stale{pool="big",endpoint="10.0.0.1:8000"}', 0)]],
    ),
    ("LlmDrift", "warning", [stays(DRIFT % "drift", 1)], [[stays(DRIFT % "drift", 0), stays(DRIFT % "warning", 1)]]),
    ("LlmBreakerOpen", "critical", [stays(BREAKER % "open", 1)], [[stays(BREAKER % "open", 0), stays(BREAKER % "half_open", 1)]]),
    ("LlmPanic", "critical", [stays("llm_breaker_panic", 1)], [[stays("llm_breaker_panic", 0)]]),
    ("LlmRolledBack", "critical", [begins(ROLLED % "rolled_back", 1)], [[begins(ROLLED % "activated", 1)], [stays(ROLLED % "rolled_back", 3)]]),
    ("LlmEnvoyRefuses", "critical", [begins(NACK, 1)], [[stays(NACK, 5)]]),
    ("LlmConfigRefused", "warning", [stays("llm_config_last_reload_success", 0)], [[stays("llm_config_last_reload_success", 1)]]),
    ("LlmAuditDropped", "warning", [grows(AUDIT, 1)], [[stays(AUDIT, 7)]]),
    ("LlmSidecarDown", "critical", [stays('up{job="extproc"}', 0)], [[stays('up{job="extproc"}', 1), stays('up{job="other"}', 0)]]),
]  # fmt: skip


def test_each_alert_has_its_cases() -> None:
    assert {(name, severity) for name, severity, *_ in CASES} == set(ALERTS)
    assert len(set(ALERTS)) == len(ALERTS)


def test_the_shipped_file_is_what_the_config_says() -> None:
    assert RULES.read_text(encoding="utf-8") == text(CONFIG)


def test_prometheus_takes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("alerts: {p99_s: {warning: 0.5, critical: 0.75}, for_s: 0}")
    assert main(["alert-rules", "--config", str(config)]) == 0
    made = capsys.readouterr().out
    assert "> 0.75" in made
    (tmp_path / "rules.yml").write_text(made)
    for file in (RULES, tmp_path / "rules.yml"):
        subprocess.run([promtool(), "check", "rules", str(file)], check=True, capture_output=True)


@pytest.mark.parametrize("text", ["{warning: 2, critical: 1}", "{warning: 0, critical: 1}", "{warning: soon}"])
def test_thresholds_that_make_no_sense(text: str) -> None:
    with pytest.raises(ConfigError, match=r"alerts\.p99_s"):
        load(f"alerts: {{p99_s: {text}}}")


def one(alert: str, severity: str, series: list[dict[str, str]], fires: bool) -> dict[str, Any]:
    expression = f'count(ALERTS{{alertname="{alert}",severity="{severity}",alertstate="firing"}}) > 0'
    samples = [{"labels": "{}", "value": 1}] if fires else []
    question = {"expr": expression, "eval_time": AT, "exp_samples": samples}
    return {"interval": "15s", "input_series": series, "promql_expr_test": [question]}


def test_they_fire_and_they_are_silent(tmp_path: Path) -> None:
    tests = []
    for alert, severity, fires, silent in CASES:
        tests.append(one(alert, severity, fires, True))
        tests += [one(alert, severity, series, False) for series in silent]
    file = tmp_path / "tests.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "15s", "tests": tests}))
    done = subprocess.run([promtool(), "test", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

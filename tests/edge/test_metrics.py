"""What is recorded appears in the exposition, is bounded, and costs little."""

from __future__ import annotations

import time
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from extproc.edge.metrics import Metrics
from extproc.model.commands import RecordPass, RecordReject
from extproc.model.names import Field
from extproc.recorded import Recorded
from extproc.tally import MAX_VALUES
from tests.decisions import decided


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(version="1.2.3")


def value(metrics: Metrics, name: str, /, **labels: str) -> float | None:
    """One sample of the text that Prometheus gets; None = no such series."""
    body, _ = metrics.exposition()
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            if sample.name == name and sample.labels == labels:
                return sample.value
    return None


def series(metrics: Metrics, name: str) -> list[dict[str, str]]:
    body, _ = metrics.exposition()
    families = text_string_to_metric_families(body.decode())
    return [sample.labels for family in families for sample in family.samples if sample.name == name]


def test_a_decision_is_counted_with_its_changes_and_grant(metrics: Metrics) -> None:
    metrics.recorded.decided(decided((Field.TEMPERATURE, "tier.strict"), (Field.TOP_P, "coupling")))
    metrics.recorded.decided(decided((Field.TEMPERATURE, "tier.strict"), max_tokens=None))
    labels = {"dialect": "openai_chat", "tier": "strict", "class": "best-effort"}
    assert value(metrics, "llm_requests_total", **labels) == 2
    assert value(metrics, "llm_changes_total", field="temperature", rule="tier.strict") == 2
    assert value(metrics, "llm_changes_total", field="top_p", rule="coupling") == 1
    assert value(metrics, "llm_granted_tokens_count", tier="strict") == 1
    assert value(metrics, "llm_granted_tokens_sum", tier="strict") == 256
    assert value(metrics, "llm_granted_tokens_bucket", tier="strict", le="128.0") == 0
    assert value(metrics, "llm_granted_tokens_bucket", tier="strict", le="256.0") == 1


def test_a_decision_without_a_dialect_has_a_label_of_its_own(metrics: Metrics) -> None:
    metrics.recorded.decided(decided(dialect=None))
    assert series(metrics, "llm_requests_total")[0]["dialect"] == "none"


def test_passes_and_rejections_by_reason(metrics: Metrics) -> None:
    metrics.recorded.passed(RecordPass("unknown_path"))
    metrics.recorded.rejected(RecordReject("body_too_large", 413))
    metrics.recorded.rejected(RecordReject("body_too_large", 413))
    assert value(metrics, "llm_passed_total", reason="unknown_path") == 1
    assert value(metrics, "llm_rejections_total", reason="body_too_large", status="413") == 2


def test_decision_time_has_fine_buckets(metrics: Metrics) -> None:
    for seconds in (0.00004, 0.0003, 0.2):
        metrics.recorded.decision_seconds(seconds)
    assert value(metrics, "llm_decision_seconds_bucket", le="5e-05") == 1
    assert value(metrics, "llm_decision_seconds_bucket", le="0.0005") == 2
    assert value(metrics, "llm_decision_seconds_bucket", le="0.1") == 2
    assert value(metrics, "llm_decision_seconds_count") == 3


def test_streams(metrics: Metrics) -> None:
    for _ in range(3):
        metrics.recorded.stream_opened()
    metrics.recorded.stream_ended("done")
    assert value(metrics, "llm_streams_open") == 2
    assert value(metrics, "llm_streams_total", outcome="done") == 1


def test_reloads_say_whether_the_last_one_was_applied(metrics: Metrics) -> None:
    assert value(metrics, "llm_config_last_reload_success") == 1
    metrics.reload_failed("invalid")
    assert value(metrics, "llm_config_last_reload_success") == 0
    metrics.reloaded(7)
    assert value(metrics, "llm_config_last_reload_success") == 1
    assert value(metrics, "llm_config_generation") == 7
    assert value(metrics, "llm_config_reloads_total", result="invalid") == 1
    assert value(metrics, "llm_config_reloads_total", result="success") == 1


def test_only_the_active_parameter_set_has_a_series(metrics: Metrics) -> None:
    metrics.published(1, "default@aaa")
    metrics.published(2, "default@bbb")
    assert series(metrics, "llm_parameter_set_info") == [{"name": "default", "version": "bbb"}]
    assert value(metrics, "llm_parameter_set_info", name="default", version="bbb") == 1
    assert value(metrics, "llm_config_generation") == 2


def test_the_build_and_the_process_are_there_and_no_created_series(metrics: Metrics) -> None:
    metrics.recorded.passed(RecordPass("x"))
    assert value(metrics, "llm_build_info", version="1.2.3") == 1
    body, content_type = metrics.exposition()
    assert content_type.startswith("text/plain")
    assert b"process_resident_memory_bytes" in body
    assert b"_created" not in body


class Audit(NamedTuple):
    written: int
    dropped: int
    failures: int
    pending: int


def test_audit_counts_are_read_at_the_scrape(metrics: Metrics) -> None:
    assert series(metrics, "llm_audit_records_total") == []
    metrics.watch_audit(Audit(written=5, dropped=2, failures=1, pending=3))
    assert value(metrics, "llm_audit_records_total", result="written") == 5
    assert value(metrics, "llm_audit_records_total", result="dropped") == 2
    assert value(metrics, "llm_audit_failures_total") == 1
    assert value(metrics, "llm_audit_pending") == 3


def test_100_000_different_reasons_are_bounded_series(metrics: Metrics) -> None:
    for number in range(100_000):
        metrics.recorded.passed(RecordPass(f"reason-{number}"))
    assert len(series(metrics, "llm_passed_total")) == MAX_VALUES + 1
    assert value(metrics, "llm_passed_total", reason="reason-0") == 1
    assert value(metrics, "llm_passed_total", reason="other") == 100_000 - MAX_VALUES
    assert (
        len(dict(metrics.recorded.counts["passed"].items())) == MAX_VALUES + 1
    )  # what is refused is not remembered either


def test_a_refused_rule_keeps_its_field(metrics: Metrics) -> None:
    for number in range(MAX_VALUES + 5):
        metrics.recorded.decided(decided((Field.TOP_P, f"rule-{number}")))
    metrics.recorded.decided(decided((Field.TEMPERATURE, "rule-new"), (Field.TEMPERATURE, "rule-0")))
    assert value(metrics, "llm_changes_total", field="top_p", rule="other") == 5
    assert value(metrics, "llm_changes_total", field="temperature", rule="other") == 1
    assert value(metrics, "llm_changes_total", field="temperature", rule="rule-0") == 1


def test_two_recorders_do_not_share_anything(metrics: Metrics) -> None:
    metrics.recorded.passed(RecordPass("x"))
    assert value(Metrics(version="0"), "llm_passed_total", reason="x") is None


def test_counting_a_decision_costs_little(metrics: Metrics) -> None:
    """Below 10 us on an idle machine; the best of many rounds, and room for a busy one."""
    record = decided((Field.TEMPERATURE, "tier.strict"), (Field.TOP_P, "coupling"), (Field.MAX_TOKENS, "length"))
    best = float("inf")
    for _ in range(20):
        begin = time.perf_counter()
        for _ in range(200):
            metrics.recorded.decided(record)
        best = min(best, (time.perf_counter() - begin) / 200)
    assert best < 20e-6


# ── other processes ──────────────────────────────────────────────────────────────────────────────


def test_what_other_processes_recorded_is_added(metrics: Metrics) -> None:
    elsewhere = Recorded()
    for recorded in (elsewhere, metrics.recorded):
        recorded.decided(decided((Field.TEMPERATURE, "tier.strict")))
        recorded.decision_seconds(0.25)
        recorded.stream_opened()
        recorded.stream_ended("completed")
    assert metrics.recorded.merge(elsewhere.take()) == 0
    labels = {"dialect": "openai_chat", "tier": "strict", "class": "best-effort"}
    assert value(metrics, "llm_requests_total", **labels) == 2
    assert value(metrics, "llm_decision_seconds_sum") == 0.5
    assert value(metrics, "llm_streams_total", outcome="completed") == 2


def test_open_streams_of_all_processes(metrics: Metrics) -> None:
    metrics.recorded.stream_opened()
    metrics.open_elsewhere("1", 3)
    metrics.open_elsewhere("2", 4)
    assert value(metrics, "llm_streams_open") == 8
    metrics.open_elsewhere("1", 0)
    assert value(metrics, "llm_streams_open") == 5


def test_records_lost_elsewhere_are_dropped_ones(metrics: Metrics) -> None:
    metrics.watch_audit(Audit(written=5, dropped=2, failures=1, pending=3))
    elsewhere = Recorded()
    elsewhere.dropped(7)
    metrics.recorded.merge(elsewhere.take())
    assert value(metrics, "llm_audit_records_total", result="dropped") == 9


def test_workers_are_shown_where_there_are_several(metrics: Metrics) -> None:
    assert series(metrics, "llm_workers") == []
    metrics.workers(expected=4, ready=3)
    assert value(metrics, "llm_workers", state="expected") == 4
    assert value(metrics, "llm_workers", state="ready") == 3

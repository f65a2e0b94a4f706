"""Requests and tokens as Prometheus gets them, in a bounded number of series."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from extproc.edge.metrics import Metrics
from extproc.edge.traffic_metrics import DURATION_BUCKETS_S, LENGTHS, TrafficMetrics, status_class
from extproc.model.telemetry import UsageSample
from extproc.tally import MAX_VALUES
from tests.windows.samples import sample

POOLS = {"chat": "chat", "chat-grpc": "chat"}


class World:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = TrafficMetrics(self.registry, pool_of=lambda cluster: POOLS.get(cluster, "other"))

    def value(self, name: str, /, **labels: str) -> float | None:
        """One sample of the text that Prometheus gets; None = no such series."""
        return next((value for one, value in self.series(name) if one == labels), None)

    def series(self, name: str) -> list[tuple[dict[str, str], float]]:
        families = text_string_to_metric_families(generate_latest(self.registry).decode())
        return [(one.labels, one.value) for family in families for one in family.samples if one.name == name]


@pytest.fixture
def world() -> World:
    return World()


def usage(**changes: Any) -> UsageSample:
    usual: dict[str, Any] = {
        "model": "llama",
        "scenario": "copywriting",
        "tier": "creative",
        "tenant": "acme",
        "pool": "chat",
        "prompt_tokens": 300,
        "output_tokens": 120,
        "finish_reason": "stop",
        "estimated": False,
    }
    return UsageSample(**(usual | changes))


def test_durations_by_pool_tier_and_class_of_status(world: World) -> None:
    world.metrics.finished([sample(), sample(cluster="chat-grpc", total_s=4.0), sample(status=503, tier="")])
    good = {"pool": "chat", "tier": "normal", "status": "2xx"}
    assert world.value("llm_request_duration_seconds_count", **good) == 2
    assert world.value("llm_request_duration_seconds_sum", **good) == pytest.approx(4.2)
    assert world.value("llm_request_duration_seconds_bucket", **good, le="0.15") == 0
    assert world.value("llm_request_duration_seconds_bucket", **good, le="0.2") == 1
    assert world.value("llm_request_duration_seconds_bucket", **good, le="+Inf") == 2
    bad = {"pool": "chat", "tier": "none", "status": "5xx"}
    assert world.value("llm_request_duration_seconds_count", **bad) == 1
    assert world.value("llm_time_to_first_byte_seconds_sum", **good) == pytest.approx(0.2)


def test_a_first_byte_that_did_not_come_is_not_observed(world: World) -> None:
    world.metrics.finished([sample(status=503, flags=("UF",), first_byte_s=None)])
    labels = {"pool": "chat", "tier": "normal", "status": "5xx"}
    assert world.value("llm_request_duration_seconds_count", **labels) == 1
    assert world.value("llm_time_to_first_byte_seconds_count", **labels) is None


def test_who_left_does_not_make_answers_look_short(world: World) -> None:
    world.metrics.finished([sample(flags=("DC",), total_s=0.01)])
    (labels, _), *others = world.series("llm_request_duration_seconds_count")
    assert (labels["status"], others) == ("cancelled", [])


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (200, "2xx"),
        (101, "1xx"),
        (302, "3xx"),
        (499, "4xx"),
        (599, "5xx"),
        (0, "none"),
        (99, "none"),
        (600, "none"),
    ],
)
def test_status_class(status: int, expected: str) -> None:
    assert status_class(status) == expected


def test_outcomes(world: World) -> None:
    world.metrics.finished(
        [
            sample(),
            sample(status=429),
            sample(status=503, flags=("UO",)),
            sample(status=503, flags=("UF",)),
            sample(status=413, upstream="", cluster=""),
        ]
    )
    found = {
        (labels["pool"], labels["outcome"]): value for labels, value in world.series("llm_request_outcomes_total")
    }
    chat = {("chat", ended): 1 for ended in ("ok", "client_error", "overflow", "error")}
    assert found == chat | {("other", "local"): 1}


def test_what_became_of_log_entries(world: World) -> None:
    metrics = world.metrics
    metrics.finished([sample(), sample()])
    metrics.entries_running(3)
    metrics.entries_unreadable(4)
    metrics.message_unreadable()
    metrics.samples_failed()
    metrics.log_opened()
    metrics.log_opened()
    metrics.log_ended()
    results = {labels["result"]: value for labels, value in world.series("llm_access_log_entries_total")}
    assert results == {"finished": 2, "running": 3, "unreadable": 4}
    reasons = {labels["reason"]: value for labels, value in world.series("llm_access_log_failures_total")}
    assert reasons == {"unreadable": 1, "not_recorded": 1}
    assert world.value("llm_access_log_streams_open") == 1


# --- tokens


@pytest.mark.parametrize(
    ("prompt", "output", "bucket", "many"),
    [
        (0, 0, "100", 0),
        (60, 40, "100", 0),
        (60, 41, "250", 0),
        (500, 500, "1000", 0),
        (500, 501, "2000", 1),
        (8000, 0, "8000", 1),
        (100_000, 1, "+Inf", 1),
    ],
)
def test_tokens_by_scenario_and_length(world: World, prompt: int, output: int, bucket: str, many: int) -> None:
    world.metrics.usage(usage(prompt_tokens=prompt, output_tokens=output))
    by = {"scenario": "copywriting", "length_bucket": bucket}
    assert world.value("llm_tokens_total", kind="prompt", **by) == prompt
    assert world.value("llm_tokens_total", kind="output", **by) == output
    assert world.value("llm_requests_over_1k_tokens_total", scenario="copywriting") == many
    assert world.value("llm_requests_with_usage_total", scenario="copywriting", estimated="false") == 1


def test_the_share_of_long_requests_is_a_quotient_of_counters(world: World) -> None:
    for output_tokens in (10, 10, 10, 900):
        world.metrics.usage(usage(output_tokens=output_tokens))
    many = world.value("llm_requests_over_1k_tokens_total", scenario="copywriting")
    counted = world.value("llm_requests_with_usage_total", scenario="copywriting", estimated="false")
    assert many is not None and counted is not None and many / counted == 0.25


def test_an_unknown_prompt_length_is_not_zero_tokens(world: World) -> None:
    world.metrics.usage(usage(prompt_tokens=None, output_tokens=120, estimated=True))
    by = {"scenario": "copywriting", "length_bucket": "250"}
    assert world.value("llm_tokens_total", kind="output", **by) == 120
    assert world.value("llm_tokens_total", kind="prompt", **by) is None
    assert world.value("llm_requests_with_usage_total", scenario="copywriting", estimated="true") == 1


def test_finish_reasons(world: World) -> None:
    for reason in ("stop", "length", "length", ""):
        world.metrics.usage(usage(finish_reason=reason, scenario=""))
    found = {labels["reason"]: value for labels, value in world.series("llm_finish_reasons_total")}
    assert found == {"stop": 1, "length": 2, "none": 1}


# --- bounds


def test_100_000_clusters_tiers_and_reasons_are_bounded_series(world: World) -> None:
    for number in range(100_000):
        world.metrics.finished([sample(cluster=f"c{number}", tier=f"t{number}")])
        world.metrics.usage(usage(scenario=f"s{number}", finish_reason=f"r{number}"))
    assert len(world.series("llm_request_duration_seconds_count")) == MAX_VALUES + 1
    assert len(world.series("llm_request_outcomes_total")) == 1
    assert len(world.series("llm_finish_reasons_total")) == MAX_VALUES + 1
    over = {"kind": "output", "scenario": "other", "length_bucket": "500"}
    assert world.value("llm_tokens_total", **over) == 120 * (100_000 - MAX_VALUES)


def test_bounds_ascend() -> None:
    for bounds in (DURATION_BUCKETS_S, LENGTHS):
        assert list(bounds) == sorted(set(bounds))


def test_a_second_family_of_one_name_is_refused(world: World) -> None:
    with pytest.raises(ValueError, match="Duplicated"):
        Counter("llm_tokens", "x", registry=world.registry)


def test_they_stand_beside_the_other_metrics_without_created_series() -> None:
    metrics = Metrics(version="1")
    TrafficMetrics(metrics.registry, pool_of=str).finished([sample()])
    body, _ = metrics.exposition()
    assert b"llm_request_duration_seconds_bucket" in body
    assert b"llm_build_info" in body
    assert b"_created" not in body

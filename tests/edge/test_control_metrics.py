"""The control plane's metrics, as Prometheus gets them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from extproc.edge.control_metrics import MAX_ENDPOINT_SERIES, ControlMetrics
from extproc.edge.metrics import Metrics
from extproc.engines.failures import Cause, Failure
from extproc.engines.reading import Source
from extproc.errors import Problem
from extproc.loops.telemetry import Target
from extproc.model.xds import Kind
from tests.edge.weights import BUSY, UNKNOWN, A, B, C, endpoints, given, pool, report

Labels = dict[str, str]


class World:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = ControlMetrics(self.registry)

    def series(self, name: str) -> list[tuple[Labels, float]]:
        families = text_string_to_metric_families(generate_latest(self.registry).decode())
        return [(one.labels, one.value) for family in families for one in family.samples if one.name == name]

    def value(self, name: str, /, **labels: str) -> float | None:
        return next((value for found, value in self.series(name) if found == labels), None)


@pytest.fixture
def world() -> World:
    return World()


GAUGES = [
    "llm_endpoint_weight",
    "llm_endpoint_draining",
    "llm_endpoint_score",
    "llm_endpoint_term",
    "llm_endpoint_reading",
    "llm_endpoint_telemetry",
    "llm_telemetry_age_seconds",
    "llm_telemetry_stale",
]


def test_before_the_first_tick_there_is_no_series_of_any_endpoint(world: World) -> None:
    assert [len(world.series(name)) for name in GAUGES] == [0] * len(GAUGES)


def test_what_sources_say_of_an_endpoint(world: World) -> None:
    known = {
        ("chat", A.key): {"fragmentation": 0.25, "sm_utilisation": 0.5},
        ("chat", B.key): {"fragmentation": 0.0},
    }
    world.metrics.terms = lambda pool, endpoint: known.get((pool, endpoint.key), {})
    world.metrics.ticked(report(BUSY), 0.01)
    assert {
        (found["endpoint"], found["term"]): value for found, value in world.series("llm_endpoint_telemetry")
    } == {
        (A.key, "fragmentation"): 0.25,
        (A.key, "sm_utilisation"): 0.5,
        (B.key, "fragmentation"): 0.0,
    }


def test_weights_and_what_they_are_made_of(world: World) -> None:
    world.metrics.ticked(report(BUSY), 0.01)
    first, last = {"pool": "chat", "endpoint": A.key}, {"pool": "chat", "endpoint": C.key}
    memory, latency = {**first, "term": "memory"}, {**first, "term": "latency"}
    assert sum(value for _, value in world.series("llm_endpoint_weight")) == 1000
    assert world.value("llm_endpoint_score", **first) == pytest.approx(0.6 * 0.8 + 0.4 * (1 - 0.3 / 1.8))
    assert world.value("llm_endpoint_term", **memory) == pytest.approx(0.8)
    assert world.value("llm_endpoint_reading", **memory) == pytest.approx(0.2)
    assert world.value("llm_endpoint_reading", **latency) == pytest.approx(0.3)
    assert world.value("llm_telemetry_age_seconds", **latency) == 1.0
    assert world.value("llm_telemetry_stale", **first) == 0
    assert world.value("llm_endpoint_draining", **first) == 0
    assert world.value("llm_endpoint_draining", **last) == 1
    assert world.value("llm_endpoint_weight", **last) == 0
    assert world.value("llm_endpoint_score", **last) is None


@pytest.mark.parametrize(("age_s", "expected"), [(1.0, 0), (14.9, 0), (16.0, 1), (90.0, 1)])
def test_a_stale_reading_shows(world: World, age_s: float, expected: float) -> None:
    world.metrics.ticked(report(pool("chat", given(A, 0.5, age_s=age_s), given(B, 0.5))), 0.01)
    assert world.value("llm_telemetry_stale", pool="chat", endpoint=A.key) == expected
    assert world.value("llm_telemetry_stale", pool="chat", endpoint=B.key) == 0


def test_what_nobody_knows_has_no_series(world: World) -> None:
    world.metrics.ticked(report(UNKNOWN), 0.01)
    assert len(world.series("llm_endpoint_weight")) == 2
    for name in ("score", "term", "reading"):
        assert world.series(f"llm_endpoint_{name}") == []
    assert world.series("llm_telemetry_age_seconds") == []


def test_an_endpoint_that_left_leaves_no_series(world: World) -> None:
    world.metrics.terms = lambda _, __: {"memory": 0.5}
    world.metrics.ticked(report(BUSY, UNKNOWN), 0.01)
    world.metrics.ticked(report(pool("chat", given(B, 0.5))), 0.01)
    for name in GAUGES:
        assert {labels["endpoint"] for labels, _ in world.series(name)} == {B.key}
        assert {labels["pool"] for labels, _ in world.series(name)} == {"chat"}


def test_series_of_endpoints_are_bounded(world: World) -> None:
    many = pool("chat", *(given(each, 0.5, 0.5) for each in endpoints(MAX_ENDPOINT_SERIES + 500)))
    world.metrics.ticked(report(many, BUSY), 0.01)
    assert len(world.series("llm_endpoint_weight")) == MAX_ENDPOINT_SERIES == 2000
    assert len(world.series("llm_endpoint_term")) == 2 * MAX_ENDPOINT_SERIES


def test_ticks_refusals_saturation_and_bugs(world: World) -> None:
    full = pool("chat", given(A, 1.0), given(B, 1.0))
    world.metrics.ticked(report(full, BUSY), 0.003)
    world.metrics.ticked(report(full, problems=(Problem("a", "b"),)), 0.003)
    world.metrics.tick_failed()
    assert world.value("llm_pool_saturated_total", pool="chat") == 2
    assert world.value("llm_snapshots_refused_total") == 1
    assert world.value("llm_ticks_failed_total") == 1
    assert world.value("llm_tick_duration_seconds_count") == 2
    assert world.value("llm_tick_duration_seconds_bucket", le="0.005") == 2


def test_a_pool_whose_every_endpoint_fails_its_checks(world: World) -> None:
    world.metrics.ticked(report(replace(BUSY, unhealthy=True), UNKNOWN), 0.01)
    assert world.series("llm_pool_unhealthy_total") == [({"pool": "chat"}, 1)]


def test_the_time_from_sample_to_push_is_told_once_a_push(world: World) -> None:
    old = pool("old", given(A, 0.5, age_s=3.0), given(B, 0.5, age_s=4.0), given(C, 0.5, age_s=50.0))
    for generation in (1, 1, 2):
        world.metrics.ticked(report(old, UNKNOWN, generation=generation), 0.01)
    assert world.value("llm_sample_to_push_seconds_count", pool="old") == 2
    assert world.value("llm_sample_to_push_seconds_sum", pool="old") == 8.0
    assert world.value("llm_sample_to_push_seconds_count", pool="dark") is None


def test_scrapes_by_source_and_cause(world: World) -> None:
    target = Target("chat/a", Source.VLLM, "http://a/metrics")
    world.metrics.scraped(target, 0.02, None)
    world.metrics.scraped(target, 2.0, Failure(Cause.TIMEOUT, "2 s"))
    world.metrics.scraped(Target("dcgm/b", Source.DCGM, "http://b"), 0.001, Failure(Cause.STATUS, "404"))
    assert world.value("llm_scrape_duration_seconds_count", source="vllm") == 2
    assert world.series("llm_scrape_failures_total") == [
        ({"source": "vllm", "cause": "timeout"}, 1),
        ({"source": "dcgm", "cause": "status"}, 1),
    ]


def test_sources_of_endpoints_that_fail(world: World) -> None:
    world.metrics.endpoints_failed("chat.yaml", "no such file")
    assert world.value("llm_endpoint_source_failures_total") == 1


def test_files_for_envoy_that_were_not_written(world: World) -> None:
    world.metrics.file_failed()
    assert world.value("llm_xds_file_failures_total") == 1


def test_what_envoys_were_sent_and_said(world: World) -> None:
    metrics = world.metrics
    metrics.stream_opened()
    metrics.stream_opened()
    metrics.stream_ended()
    metrics.pushed(Kind.EDS)
    metrics.acked(Kind.EDS, 0.02)
    metrics.nacked(Kind.CDS, "envoy-1", "no such cluster")
    assert world.value("llm_xds_streams_open") == 1
    assert world.value("llm_xds_pushes_total", type="eds") == 1
    assert world.value("llm_xds_acks_total", type="eds") == 1
    assert world.value("llm_xds_nacks_total", type="cds") == 1
    assert world.value("llm_xds_push_seconds_sum", type="eds") == pytest.approx(0.02)


def test_no_name_clashes_with_the_other_metrics() -> None:
    metrics = Metrics(version="1")
    ControlMetrics(metrics.registry)
    assert b"llm_endpoint_weight" in metrics.exposition()[0]

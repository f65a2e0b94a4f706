"""The control plane's keys: shipped values, and every mistake with its path."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from extproc.errors import ConfigError
from extproc.settings import load

SHIPPED = load("")


def test_shipped_telemetry() -> None:
    shipped = SHIPPED.telemetry
    assert (shipped.interval_s, shipped.stale_after_intervals, shipped.neutral_after_intervals) == (5, 3, 6)
    assert shipped.timeout_s < shipped.interval_s
    assert (shipped.triton_statistics, shipped.dcgm, shipped.prometheus) == (False, [], None)


def test_shipped_health() -> None:
    assert (SHIPPED.health.interval_s, SHIPPED.health.failures) == (1, 2)
    assert SHIPPED.health.timeout_s < SHIPPED.health.interval_s


def test_shipped_weights() -> None:
    shipped = SHIPPED.weights
    assert (shipped.memory, shipped.latency) == (0.6, 0.4)
    assert (shipped.max_step, shipped.min_change, shipped.lb_policy) == (0.25, 0.01, "LEAST_REQUEST")


def test_shipped_rest() -> None:
    assert SHIPPED.usage.enabled is False
    assert (SHIPPED.xds.enabled, SHIPPED.xds.views) == (True, [])


def test_other_sources() -> None:
    loaded = load(
        """
telemetry:
  dcgm: [{url: "http://10.0.0.9:9400/metrics", label: Hostname}]
  prometheus: {url: "https://prometheus:9090/base", label: instance, queries: {memory: "avg(x) by (instance)"}}
"""
    ).telemetry
    assert [(each.url, each.label) for each in loaded.dcgm] == [("http://10.0.0.9:9400/metrics", "Hostname")]
    assert loaded.prometheus is not None
    assert loaded.prometheus.queries == {"memory": "avg(x) by (instance)"}


def test_a_view() -> None:
    loaded = load(
        """
pools: [{name: chat, engine: vllm, endpoints: ['http://h:1']}]
xds: {views: [{node_id: '*', node_cluster: 'edge-*', pools: [chat]}]}
"""
    )
    assert [each.pools for each in loaded.xds.views] == [["chat"]]


URL = "http://h:9400/metrics"
QUERIES = {"url": "http://h:9090", "label": "instance", "queries": {}}


@pytest.mark.parametrize(
    ("key", "value", "path"),
    [
        ("telemetry", {"interval_s": 0}, "interval_s"),
        ("telemetry", {"interval_s": "5s"}, "interval_s"),
        ("telemetry", {"timeout_s": -1}, "timeout_s"),
        ("telemetry", {"max_concurrency": 0}, "max_concurrency"),
        ("telemetry", {"max_concurrency": 5000}, "max_concurrency"),
        ("telemetry", {"stale_after_intervals": 0}, "stale_after_intervals"),
        ("telemetry", {"neutral_after_intervals": float("inf")}, "neutral_after_intervals"),
        ("telemetry", {"triton_statistics": "yes"}, "triton_statistics"),
        ("telemetry", {"dcgm": [{"url": URL}]}, "dcgm.0.label"),
        ("telemetry", {"dcgm": [{"url": "h:9400", "label": "a"}]}, "dcgm.0.url"),
        ("telemetry", {"dcgm": [{"url": "http://me:word@h", "label": "a"}]}, "dcgm.0.url"),
        ("telemetry", {"dcgm": [{"url": URL, "label": 'a="b"'}]}, "dcgm.0.label"),
        ("telemetry", {"prometheus": QUERIES | {"url": "ftp://h"}}, "prometheus.url"),
        ("telemetry", {"prometheus": QUERIES | {"label": "1a"}}, "prometheus.label"),
        ("telemetry", {"prometheus": QUERIES | {"queries": {"memory": 5}}}, "prometheus.queries.memory"),
        ("telemetry", {"prometheus": QUERIES | {"token": "x"}}, "prometheus.token"),
        ("telemetry", {"jitter": 1}, "jitter"),
        ("health", {"interval_s": 0}, "interval_s"),
        ("health", {"failures": 0}, "failures"),
        ("health", {"failures": 1.5}, "failures"),
        ("weights", {"memory": 1.1}, "memory"),
        ("weights", {"latency": -0.1}, "latency"),
        ("weights", {"latency": True}, "latency"),
        ("weights", {"window_s": 0.5}, "window_s"),
        ("weights", {"max_step": 0}, "max_step"),
        ("weights", {"min_change": 2}, "min_change"),
        ("weights", {"lb_policy": "RANDOM"}, "lb_policy"),
        ("weights", {"lb_policy": "ROUND_ROBIN\n"}, "lb_policy"),
        ("usage", {"enabled": 1}, "enabled"),
        ("xds", {"enabled": None}, "enabled"),
        ("xds", {"views": [{"node_id": "*", "node_cluster": "*", "pools": []}]}, "views.0.pools"),
        ("xds", {"views": [{"node_id": "*", "pools": ["a"]}]}, "views.0.node_cluster"),
    ],
)
def test_a_mistake_is_told_with_its_path(key: str, value: dict[str, Any], path: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        load(yaml.safe_dump({key: value}))
    assert [problem.path for problem in refusal.value.problems] == [f"{key}.{path}"]

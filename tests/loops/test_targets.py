"""What is scraped, and that it is found again under the same keys."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from extproc.control import TelemetryConfig
from extproc.engines.joining import Join
from extproc.engines.reading import Source
from extproc.loops.targets import grpc_url, own, shared, statistics, targets
from extproc.loops.telemetry import Target
from extproc.model.topology import Endpoint
from extproc.pools import Pool
from extproc.settings import load

SHARED = {
    "dcgm": [
        {"url": "http://10.0.0.9:9400/metrics", "label": "Hostname"},
        {"url": "http://10.0.0.8:9400/metrics", "label": "instance"},
    ],
    "prometheus": {"url": "http://prom:9090", "label": "pod_ip", "queries": {"memory": "m", "p99_s": "p"}},
}


def telemetry(**changes: Any) -> TelemetryConfig:
    return load(yaml.safe_dump({"telemetry": changes})).telemetry


def pool(name: str, engine: str) -> Pool:
    (found,) = load(f"pools: [{{name: {name}, engine: {engine}, endpoints_file: f}}]").pools
    return found


TRITON = Endpoint("10.0.0.1", 8000, 8001)
VLLM = Endpoint("::1", 8000)


def test_every_endpoint_has_its_own_page() -> None:
    placed = [(pool("a", "triton"), TRITON), (pool("b", "vllm"), VLLM), (pool("c", "llamacpp"), TRITON)]
    assert list(targets(placed, telemetry())) == [
        Target("a/10.0.0.1:8000", Source.TRITON, "http://10.0.0.1:8002/metrics"),
        Target("b/::1:8000", Source.VLLM, "http://[::1]:8000/metrics"),
        Target("c/10.0.0.1:8000", Source.LLAMACPP, "http://10.0.0.1:8000/metrics"),
    ]


def test_statistics_of_tritons_with_a_grpc_port() -> None:
    triton = pool("a", "triton")
    placed = [(triton, TRITON), (triton, Endpoint("10.0.0.2", 8000))]
    found = list(targets(placed, telemetry(triton_statistics=True)))
    assert [each.key for each in found] == ["a/10.0.0.1:8000", "a/10.0.0.1:8000/statistics", "a/10.0.0.2:8000"]
    assert found[1] == Target(statistics("a", TRITON), Source.TRITON, "grpc://10.0.0.1:8001")


def test_shared_sources_are_scraped_once_and_found_under_their_keys() -> None:
    config = telemetry(**SHARED)
    found = {each.key: each for each in targets([], config)}
    assert [(key, join) for key, join in shared(config)] == [
        ("dcgm/http://10.0.0.9:9400/metrics", Join.HOST),
        ("dcgm/http://10.0.0.8:9400/metrics", Join.ENDPOINT),
        ("prometheus/memory", Join.HOST),
        ("prometheus/p99_s", Join.HOST),
    ]
    assert list(found) == [key for key, _ in shared(config)]
    assert found["prometheus/memory"] == Target("prometheus/memory", Source.PROMETHEUS, "memory", "pod_ip")
    assert shared(telemetry()) == ()


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        (TRITON, "grpc://10.0.0.1:8001"),
        (Endpoint("::1", 1, 2), "grpc://[::1]:2"),
        (Endpoint("10.0.0.1", 1, 2, tls=True), "grpcs://10.0.0.1:2"),
    ],
)
def test_where_triton_speaks_grpc(endpoint: Endpoint, expected: str) -> None:
    assert grpc_url(endpoint) == expected


def test_one_endpoint_in_two_pools_has_two_keys() -> None:
    assert own("a", VLLM) != own("b", VLLM)

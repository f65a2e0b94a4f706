"""Tallies as Prometheus gets them."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from extproc import collectors


def test_a_counter_and_a_histogram_by_labels() -> None:
    registry = CollectorRegistry()
    collectors.counts(registry, "llm_things", "Things.", ("kind",)).add(("a",), 2)
    collectors.buckets(registry, "llm_seconds", "Time.", (0.5, 1.0), ("kind",)).at(("a",)).observe(0.7)
    page = generate_latest(registry).decode()
    assert 'llm_things_total{kind="a"} 2.0' in page
    assert 'llm_seconds_bucket{kind="a",le="0.5"} 0.0' in page
    assert 'llm_seconds_bucket{kind="a",le="1.0"} 1.0' in page
    assert 'llm_seconds_sum{kind="a"} 0.7' in page


def test_a_name_is_taken_once() -> None:
    registry = CollectorRegistry()
    collectors.counts(registry, "llm_things", "Things.", ())
    with pytest.raises(ValueError, match="Duplicated"):
        collectors.buckets(registry, "llm_things", "Things.", (1.0,), ())

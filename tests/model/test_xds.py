"""Kinds in the order of their pushing, and what is not there is empty."""

from __future__ import annotations

import pytest

from extproc.model.xds import (
    NOTHING,
    Encoded,
    EncodedKind,
    Kind,
    Resource,
    Resources,
    assignment_name,
    version_of,
)


def test_a_change_is_pushed_in_the_order_clusters_endpoints_routes_runtime() -> None:
    assert list(Kind) == [Kind.CDS, Kind.EDS, Kind.RDS, Kind.RTDS]
    assert [kind.rpartition(".")[2] for kind in Kind] == [
        "Cluster",
        "ClusterLoadAssignment",
        "RouteConfiguration",
        "Runtime",
    ]


def test_a_kind_that_is_absent_is_empty() -> None:
    assert Resources(1, {}).of(Kind.RDS) == {}
    assert Encoded(1).of(Kind.RDS) == EncodedKind("", {})


def test_nothing_yet_is_generation_zero() -> None:
    assert NOTHING.generation == 0
    assert not NOTHING.by_kind


@pytest.mark.parametrize(
    ("cluster", "asks"),
    [
        ({"type": "EDS"}, "a"),
        ({"type": 3}, "a"),
        ({"type": "EDS", "eds_cluster_config": None}, "a"),
        ({"type": "EDS", "eds_cluster_config": {"service_name": ""}}, "a"),
        ({"type": "EDS", "eds_cluster_config": {"service_name": "pool"}}, "pool"),
        ({"type": "STATIC"}, None),
        ({}, None),
    ],
)
def test_the_assignment_a_cluster_asks_for(cluster: Resource, asks: str | None) -> None:
    assert assignment_name("a", cluster) == asks


def test_a_version_is_of_names_and_versions_in_any_order() -> None:
    assert version_of({"a": "1", "b": "2"}) == version_of({"b": "2", "a": "1"})
    versions = [
        version_of(each) for each in ({}, {"a": "1"}, {"a": "2"}, {"b": "1"}, {"a1": ""}, {"a": "1", "b": "2"})
    ]
    assert len(set(versions)) == len(versions)

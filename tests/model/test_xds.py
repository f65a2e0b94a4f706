"""Kinds in the order of their pushing, and what is not there is empty."""

from __future__ import annotations

from extproc.model.xds import NOTHING, Encoded, EncodedKind, Kind, Resources


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

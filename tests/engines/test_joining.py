"""Samples of a shared source, found for an endpoint."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from extproc.engines.joining import TERMS, Join, keyed, names, of_terms, worst
from extproc.model.telemetry import EngineSample
from extproc.model.topology import Endpoint


def find(samples: Mapping[str, EngineSample], endpoint: Endpoint, join: Join) -> EngineSample | None:
    """As the loops look one up."""
    known = keyed(samples, join)
    return next((known[name] for name in names(endpoint, join) if name in known), None)


def memory(value: float, at: float = 1.0) -> EngineSample:
    return EngineSample(at=at, memory=value)


BY_INSTANCE = {"10.0.0.1:8000": memory(0.1), "10.0.0.1:8001": memory(0.2), "10.0.0.2:9400": memory(0.3)}


@pytest.mark.parametrize(
    ("address", "port", "join", "expected"),
    [
        ("10.0.0.1", 8000, Join.ENDPOINT, 0.1),
        ("10.0.0.1", 8001, Join.ENDPOINT, 0.2),
        ("10.0.0.1", 8002, Join.ENDPOINT, None),  # a neighbour's readings are not its own
        ("10.0.0.1", 8002, Join.HOST, 0.2),
        ("10.0.0.2", 8000, Join.HOST, 0.3),
        ("10.0.0.3", 8000, Join.HOST, None),
    ],
)
def test_by_instance(address: str, port: int, join: Join, expected: float | None) -> None:
    found = find(BY_INSTANCE, Endpoint(address, port), join)
    assert (found and found.memory) == expected


@pytest.mark.parametrize("label", ["node-a", "Node-A", "node-a:9400"])
def test_a_host_by_its_name(label: str) -> None:
    assert find({label: memory(0.5)}, Endpoint("node-a", 8000), Join.HOST) == memory(0.5)


@pytest.mark.parametrize("label", ["::1", "[::1]:9400", "[::1]"])
def test_a_host_by_an_ipv6_address(label: str) -> None:
    assert find({label: memory(0.5)}, Endpoint("::1", 8000), Join.HOST) == memory(0.5)


NAMED = Endpoint("10.0.0.7", 8000, hostname="Node-A")


@pytest.mark.parametrize(
    ("labels", "join", "expected"),
    [
        (["node-a"], Join.HOST, 0),
        (["node-a:9400"], Join.HOST, 0),
        (["10.0.0.7:9400"], Join.HOST, 0),
        (["node-a", "10.0.0.7"], Join.HOST, 1),  # the address is the surer one
        (["node-a:8000"], Join.ENDPOINT, 0),
        (["10.0.0.7:8000"], Join.ENDPOINT, 0),
        (["node-a:8001", "node-a"], Join.ENDPOINT, None),
    ],
)
def test_an_address_that_was_found_by_a_name(labels: list[str], join: Join, expected: int | None) -> None:
    samples = {label: memory(0.1 * number) for number, label in enumerate(labels)}
    assert find(samples, NAMED, join) == (None if expected is None else samples[labels[expected]])


def test_an_ipv6_address_with_its_port() -> None:
    assert find({"[::1]:8000": memory(0.5)}, Endpoint("::1", 8000), Join.ENDPOINT) == memory(0.5)


def test_the_worst_of_each_term_and_the_oldest_time() -> None:
    found = worst(
        [
            EngineSample(at=3.0, memory=0.9, waiting=1.0, prefix_hit_rate=0.7),
            EngineSample(at=2.0, memory=0.1, waiting=4.0, prefix_hit_rate=0.2),
            EngineSample(at=4.0, sm_utilisation=0.5),
        ]
    )
    assert found == EngineSample(at=2.0, memory=0.9, waiting=4.0, prefix_hit_rate=0.2, sm_utilisation=0.5)
    assert worst([]) is None


def test_every_term_of_a_sample_is_named() -> None:
    assert {"at", "rates", *TERMS} == set(EngineSample.__struct_fields__)
    assert of_terms({"memory": 0.5}, at=1.0) == memory(0.5)

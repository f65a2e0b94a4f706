"""Query results as samples of one term."""

from __future__ import annotations

import math

import pytest

from extproc.engines.exposition import Point
from extproc.engines.prometheus import samples
from extproc.model.telemetry import EngineSample


def result(term: str, value: float, instance: str | None = "a:1") -> Point:
    return Point(term, {} if instance is None else {"instance": instance}, value)


def test_a_term_by_instance_the_worst_of_several() -> None:
    points = (result("memory", 0.2), result("memory", 0.7), result("memory", 0.1, "b:1"))
    assert samples(points, label="instance", now=5.0) == {
        "a:1": EngineSample(at=5.0, memory=0.7),
        "b:1": EngineSample(at=5.0, memory=0.1),
    }


@pytest.mark.parametrize(
    "point",
    [
        result("memory", math.nan),
        result("memory", math.inf),
        result("memory", 70.0),
        result("p99_s", -1.0),
        result("waiting", -1.0),
        result("at", 1.0),
        result("rates", 1.0),
        result("memory", 0.5, None),
    ],
)
def test_what_is_no_reading_is_left_out(point: Point) -> None:
    assert samples((point,), label="instance", now=5.0) == {}


@pytest.mark.parametrize(("term", "value"), [("p99_s", 1.5), ("waiting", 12.0), ("prefix_hit_rate", 0.4)])
def test_each_term_in_its_unit(term: str, value: float) -> None:
    (sample,) = samples((result(term, value),), label="instance", now=5.0).values()
    assert getattr(sample, term) == value

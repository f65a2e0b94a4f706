"""Each source is read by its own mapping."""

from __future__ import annotations

import pytest

from extproc.engines.exposition import Point
from extproc.engines.failures import Cause, Failure
from extproc.engines.reading import OWN, Reading, Source, read
from tests.engines.texts import page

PAGES = [Source.TRITON, Source.VLLM, Source.LLAMACPP, Source.DCGM]


def reading(source: Source, content: bytes, previous: Reading | None = None, now: float = 5.0) -> Reading:
    counters = previous.counters if previous else None
    label = "Hostname" if source is Source.DCGM else None
    found = read(source, content, counters, label=label, now=now)
    assert isinstance(found, Reading), found
    return found


@pytest.mark.parametrize("source", PAGES)
def test_a_captured_page_gives_a_sample(source: Source) -> None:
    found = reading(source, page(source.value))
    assert set(found.samples) == ({"node-a"} if source is Source.DCGM else {OWN})
    assert isinstance(found.kept, bytes)
    assert 0 < len(found.kept) < len(page(source.value))


@pytest.mark.parametrize("source", [Source.TRITON, Source.VLLM, Source.LLAMACPP])
def test_counters_go_from_one_reading_to_the_next(source: Source) -> None:
    first = reading(source, page(source.value))
    second = reading(source, page(source.value), first, now=10.0)
    assert dict(first.samples[OWN].rates) == {}
    assert set(second.samples[OWN].rates.values()) == {0.0}


@pytest.mark.parametrize("source", PAGES)
def test_an_error_page_is_a_failure_not_an_idle_engine(source: Source) -> None:
    found = read(source, b"<html>503</html>", None, now=5.0)
    assert isinstance(found, Failure)
    assert found.cause is Cause.NOT_METRICS


@pytest.mark.parametrize("source", PAGES)
def test_a_page_of_something_else_tells_nothing(source: Source) -> None:
    found = reading(source, b"node_load1 0.5\n")
    assert all(sample.memory is None for sample in found.samples.values())


def test_points_of_another_protocol_are_read_as_a_page_is() -> None:
    points = (Point("nv_inference_pending_request_count", {}, 3.0),)
    found = read(Source.TRITON, points, None, now=5.0)
    assert isinstance(found, Reading)
    assert (found.samples[OWN].waiting, found.kept) == (3.0, points)


def test_query_results_are_joined_by_their_label() -> None:
    points = (Point("memory", {"host": "a"}, 0.5),)
    found = read(Source.PROMETHEUS, points, None, label="host", now=5.0)
    assert isinstance(found, Reading)
    assert found.samples["a"].memory == 0.5

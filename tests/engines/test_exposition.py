"""Text exposition: what is kept of a page, what a line says, and what is no page of metrics."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from extproc.engines import vllm
from extproc.engines.exposition import MAX_PAGE_BYTES, MAX_SERIES, Point, cut, gauges, parse, wanted
from extproc.engines.failures import Cause, Failure
from tests.engines.texts import page, points

WANTED = wanted(gauges=("up", "up:ratio"), counters=("asked_total", "done"), histograms=("took_seconds",))


def one(line: bytes) -> Point:
    (point,) = points(b"# TYPE up gauge\n" + line, WANTED)
    return point


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (b"up 1", 1.0),
        (b"up\t1\n", 1.0),
        (b"up{} 1\n", 1.0),
        (b"up 1\r\n", 1.0),
        (b"up 1.5e-3\n", 0.0015),
        (b"up -2E+2\n", -200.0),
        (b"up +Inf\n", math.inf),
        (b"up -Inf\n", -math.inf),
        (b"up 3 1796062121700\n", 3.0),
        (b"up 3 1796062121.7\n", 3.0),
        (b'up 3 # {trace_id="a b } 9"} 0.5 1796062121.7\n', 3.0),
        (b'up{a="}"} 4\n', 4.0),
    ],
)
def test_values(line: bytes, value: float) -> None:
    assert one(line).value == value


def test_nan_is_a_value_that_no_gauge_shows() -> None:
    assert math.isnan(one(b"up NaN\n").value)
    assert gauges(points(b'up NaN\nup{a="b"} +Inf\nup{a="c"} 2\n', WANTED), "up") == [2.0]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (rb'a="b"', {"a": "b"}),
        (rb'a="say \"up 7\""', {"a": 'say "up 7"'}),
        (rb'a="C:\\up"', {"a": "C:\\up"}),
        (rb'a="one\nup 9"', {"a": "one\nup 9"}),
        (rb'a="\\n"', {"a": "\\n"}),
        (rb'a="x,y=\"z\"",b="}{"', {"a": 'x,y="z"', "b": "}{"}),
        (rb'a="1", b="2",', {"a": "1", "b": "2"}),
        (rb'a = "1"', {"a": "1"}),
        (rb'a=""', {"a": ""}),
        ('a="模型"'.encode(), {"a": "模型"}),
    ],
)
def test_labels(labels: bytes, expected: dict[str, str]) -> None:
    assert one(b"up{" + labels + b"} 5\n") == Point("up", expected, 5.0)


@pytest.mark.parametrize(
    "line",
    [b"upper 1", b"up_total 1", b"xup 1", b"up", b"up x", b"up 1_0", b'up{a="b} 1', b"up{ 1", b"# up 1", b" up 1"],
)
def test_lines_that_are_not_taken(line: bytes) -> None:
    assert points(b"# x\n" + line + b"\n", WANTED) == ()


def test_absent_families_are_silent() -> None:
    assert cut(b"# TYPE other gauge\nother 1\n", WANTED) == b""
    assert points(b"other 1\n", WANTED) == ()


@pytest.mark.parametrize("spelling", [b"asked", b"asked_total"])
def test_a_counter_is_found_in_both_spellings(spelling: bytes) -> None:
    assert points(b"%s 4\n" % spelling, WANTED) == (Point("asked_total", {}, 4.0),)
    assert points(b"done_total 4\n", WANTED)[0].name == "done"


def test_cumulative_names_are_those_of_counters_and_histograms() -> None:
    assert WANTED.cumulative == {
        "asked_total",
        "done",
        "took_seconds_bucket",
        "took_seconds_sum",
        "took_seconds_count",
    }


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\n \n",
        b"<!DOCTYPE html>\n<html>\nup 1\n</html>",
        b"  <html>",
        b'{"up": 1}',
        b"404 page not found\n",
        b"Not Found\n",
        b"ok",
        b"\x1f\x8b\x08\x00",
        b"\xff\xfe# up 1",
    ],
)
def test_no_page_of_metrics(body: bytes) -> None:
    found = cut(body, WANTED)
    assert isinstance(found, Failure)
    assert found.cause is Cause.NOT_METRICS


def test_a_long_first_line_is_no_reason_to_refuse() -> None:
    assert points(b'up{a="' + b"x" * 10_000 + b'"} 1\n', WANTED)[0].value == 1.0


def test_size_and_series_are_bounded() -> None:
    large = b"# x\n" + b"other 1\n" * (MAX_PAGE_BYTES // 8)
    assert isinstance(found := cut(large, WANTED), Failure)
    assert found.cause is Cause.TOO_LARGE
    many = b"".join(b'up{a="%d"} 1\n' % number for number in range(MAX_SERIES + 1))
    assert isinstance(found := cut(many, WANTED), Failure)
    assert found.cause is Cause.TOO_MANY_SERIES


def test_the_wanted_of_two_megabytes() -> None:
    filler = b'other{a="up 3"} 1\n' * 110_000
    assert 1_900_000 < len(filler) < MAX_PAGE_BYTES - 100
    assert [point.value for point in points(b"up 1\n" + filler + b"up 2", WANTED)] == [1.0, 2.0]


def test_a_captured_page_says_the_same_as_the_reference_parser() -> None:
    text = page("vllm")
    reference = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if sample.name in vllm.WANTED.names
    }
    found = {(point.name, frozenset(point.labels.items())): point.value for point in points(text, vllm.WANTED)}
    assert found == reference
    assert len(found) > 50


NAMES = st.sampled_from(["a", "b2", "_c"])


@given(
    labels=st.dictionaries(NAMES, st.text(st.characters(exclude_categories=("Cs",)), max_size=30)),
    value=st.floats(),
)
def test_what_is_written_by_the_rules_is_read_back(labels: dict[str, str], value: float) -> None:
    escaped = {k: v.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"') for k, v in labels.items()}
    text = ",".join(f'{name}="{value}"' for name, value in escaped.items())
    point = one(f"up{{{text}}} {value!r}\n".encode())
    assert point.labels == labels
    assert point.value == value or (math.isnan(point.value) and math.isnan(value))


@given(st.binary(max_size=300))
def test_no_bytes_break_it(noise: bytes) -> None:
    for body in (noise, b"up 1\n" + noise, b"up{" + noise, b'up{a="' + noise + b'"} 1'):
        kept = cut(body, WANTED)
        if isinstance(kept, bytes):
            assert all(point.name in WANTED.names.values() for point in parse(kept, WANTED))

"""Load reports of engines: what is a number with a name is read, anything else is nothing."""

from __future__ import annotations

import json
from math import isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.codec.orca import MAX_METRICS, MAX_NAME, MAX_REPORT_BYTES, report


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        # vLLM's own.
        (
            b'JSON {"named_metrics": {"num_requests_waiting": 0.0, "kv_cache_usage_perc": 0.25}}',
            {"num_requests_waiting": 0.0, "kv_cache_usage_perc": 0.25},
        ),
        (b'JSON {"cpu_utilization": 0.3, "rps_fractional": 12}', {"cpu_utilization": 0.3, "rps_fractional": 12.0}),
        (b'JSON {"a": 1, "named_metrics": {"a": 2}}', {"a": 2.0}),
        (b"TEXT a=1,b=2", {"a": 1.0, "b": 2.0}),
        (b"TEXT named_metrics.kv=0.5, cpu_utilization=1e-1", {"kv": 0.5, "cpu_utilization": 0.1}),
        (b"TEXT a=1,,b,c=x,=4,d=5,e=", {"a": 1.0, "d": 5.0}),
        (b"TEXT a=nan,b=inf,c=-inf,d=1e400,e=-1", {"e": -1.0}),
        (b'JSON {"a": true, "b": null, "c": "1", "d": [1], "e": {"x": 1}, "g": 2}', {"g": 2.0}),
        (b'JSON {"a": 1e400, "g": 2}', {}),
        (b'JSON {"a": 1%s}' % (b"0" * 400), {}),
        (b'JSON {"named_metrics": 3}', {}),
        (b'JSON {"named_metrics": {"": 1, "b": "x"}}', {}),
        (b"JSON [1]", {}),
        (b"JSON {", {}),
        (b"JSON", {}),
        (b'JSON {"a\xff": 1}', {}),
        (b"JSON " + b'{"a":' * 800, {}),
        (b"TEXT", {}),
        (b"TEXT \xff\xfe=1,a=2", {"\ufffd\ufffd": 1.0, "a": 2.0}),
        (b"BIN CAEQ", {}),
        (b'{"a": 1}', {}),
        (b"", {}),
        (b"TEXT " + b"a" * (MAX_NAME + 1) + b"=1,b=2", {"b": 2.0}),
        (b"TEXT a=1," + b" " * MAX_REPORT_BYTES, {}),
    ],
)
def test_report(value: bytes, expected: dict[str, float]) -> None:
    assert report(value) == expected


@pytest.mark.parametrize("form", ["JSON", "TEXT"])
def test_the_number_of_metrics_is_bounded(form: str) -> None:
    metrics = {f"m{number}": number for number in range(MAX_METRICS + 50)}
    text = json.dumps(metrics) if form == "JSON" else ",".join(f"{k}={v}" for k, v in metrics.items())
    found = report(f"{form} {text}".encode())
    assert found == {f"m{number}": number for number in range(MAX_METRICS)}


@given(st.sampled_from([b"JSON ", b"TEXT ", b""]), st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_anything_is_finite_numbers_or_nothing(form: bytes, rest: bytes) -> None:
    for name, value in report(form + rest).items():
        assert name
        assert isinstance(value, float)
        assert isfinite(value)


names = st.text(min_size=1, max_size=20)


@given(st.dictionaries(names, st.floats(allow_nan=False, allow_infinity=False), max_size=20))
def test_json_reports_are_read_whole(metrics: dict[str, float]) -> None:
    assert report(b"JSON " + json.dumps({"named_metrics": metrics}).encode()) == metrics

"""`--engine URL=KIND` to pools."""

from __future__ import annotations

import argparse

import pytest

from extproc.cli.engines import engine_argument, pools_of, standin_engines
from extproc.errors import CannotStart
from extproc.model.names import Engine
from extproc.model.topology import Endpoint


@pytest.mark.parametrize(
    ("text", "url", "kind"),
    [
        ("http://h:8000=vllm", "http://h:8000", Engine.VLLM),
        ("https://h=triton", "https://h", Engine.TRITON),
        ("http://[::1]:1=llamacpp", "http://[::1]:1", Engine.LLAMACPP),
        ("http://h:1/?a=b=vllm", "http://h:1/?a=b", Engine.VLLM),
    ],
)
def test_an_engine(text: str, url: str, kind: Engine) -> None:
    assert engine_argument(text) == (url, kind)


@pytest.mark.parametrize("text", ["", "http://h:8000", "http://h:8000=", "http://h:8000=tgi", "=", "h=VLLM"])
def test_no_engine(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"expected URL=triton\|vllm\|llamacpp"):
        engine_argument(text)


def test_pools_in_the_order_given() -> None:
    found = pools_of([("http://a:1", Engine.TRITON), ("http://b:2", Engine.VLLM)], by_priority=False)
    assert [(p.name, p.engine, p.endpoints, p.schedules_by_priority) for p in found] == [
        ("engine-1", Engine.TRITON, ["http://a:1"], None),
        ("engine-2", Engine.VLLM, ["http://b:2"], None),
    ]
    assert pools_of([], by_priority=True) == []


def test_one_page_may_tell_of_all_engines() -> None:
    urls = [("http://a:1", Engine.TRITON), ("http://[::1]:2", Engine.VLLM)]
    found = pools_of(urls, by_priority=False, metrics_url="http://m:9/x")
    assert [pool.listed() for pool in found] == [
        (Endpoint("a", 1, metrics_url="http://m:9/x"),),
        (Endpoint("::1", 2, metrics_url="http://m:9/x"),),
    ]


def test_pools_by_priority_where_the_engine_has_one() -> None:
    found = pools_of(standin_engines("http://h:1"), by_priority=True)
    assert [(p.engine, p.schedules_by_priority) for p in found] == [
        (Engine.VLLM, True),
        (Engine.TRITON, True),
        (Engine.LLAMACPP, None),
    ]


@pytest.mark.parametrize("url", ["", "h:8000", "http://h:1/v1", "ftp://h"])
def test_a_bad_url_is_one_line(url: str) -> None:
    with pytest.raises(CannotStart, match=r"^--engine: allowed: http://host:port") as failure:
        pools_of([(url, Engine.VLLM)], by_priority=False)
    assert "\n" not in str(failure.value)

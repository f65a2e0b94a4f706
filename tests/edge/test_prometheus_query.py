"""The query API of a monitoring server: its answers as points, its refusals as causes."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
import urllib.parse
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from extproc.edge.prometheus_query import Queries, read, url
from extproc.edge.scrape import Pages
from extproc.engines.exposition import Point
from extproc.engines.failures import Cause, Failure
from extproc.engines.joining import Join, keyed
from extproc.engines.reading import Reading, Source
from extproc.engines.reading import read as read_source
from tests.ports import free_port


def answer(*series: tuple[dict[str, str], str], kind: str = "vector", status: str = "success") -> bytes:
    result = [{"metric": labels, "value": [1796062121.7, value]} for labels, value in series]
    return json.dumps({"status": status, "data": {"resultType": kind, "result": result}}).encode()


def test_a_vector_is_points_with_its_labels() -> None:
    body = answer(({"instance": "a:1", "job": "x"}, "0.5"), ({"instance": "b:1"}, "NaN"), ({}, "+Inf"))
    found = read("memory", body)
    assert not isinstance(found, Failure)
    assert found[0] == Point("memory", {"instance": "a:1", "job": "x"}, 0.5)
    assert [point.value for point in found[1:]] != [0.0, 0.0]
    assert read("memory", answer()) == ()


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (answer(kind="matrix"), Cause.QUERY),
        (b'{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}', Cause.QUERY),
        (b'{"status":"error","errorType":"bad_data","error":"parse error"}', Cause.QUERY),
        (b'{"status":"success"}', Cause.QUERY),
        (b"<html>", Cause.NOT_METRICS),
        (b"[]", Cause.NOT_METRICS),
        (b"", Cause.NOT_METRICS),
        (b"\xff", Cause.NOT_METRICS),
        (answer(({}, "much")), Cause.NOT_METRICS),
        (b"[" * 100_000, Cause.NOT_METRICS),
        (b'{"status":"success","data":{"resultType":"vector","result":[{"value":[1]}]}}', Cause.NOT_METRICS),
        (answer(*[({}, "1")] * 20_001), Cause.TOO_MANY_SERIES),
    ],
)
def test_what_is_no_answer(body: bytes, cause: Cause) -> None:
    found = read("memory", body)
    assert isinstance(found, Failure)
    assert found.cause is cause


def test_a_query_is_quoted_into_the_url() -> None:
    promql = 'max by (instance) (rate(x{a="b&c"}[1m])) > 0'
    found = url("http://p:9090/prom/", promql)
    assert found.startswith("http://p:9090/prom/api/v1/query?query=")
    assert urllib.parse.parse_qs(urllib.parse.urlsplit(found).query) == {"query": [promql]}


@pytest.fixture
async def pages() -> AsyncIterator[Pages]:
    pages = Pages(timeout_s=2)
    yield pages
    await pages.close()


async def test_one_query_per_term_over_http(pages: Pages) -> None:
    asked: list[str] = []

    async def query(request: web.Request) -> web.Response:
        asked.append(request.query["query"])
        if "broken" in request.query["query"]:
            return web.Response(status=400, body=b'{"status":"error","errorType":"bad_data"}')
        return web.Response(body=answer(({"instance": "10.0.0.1:8000"}, "0.25")))

    app = web.Application()
    app.router.add_get("/api/v1/query", query)
    runner = web.AppRunner(app)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    promql = {"memory": "mem + 1", "p99_s": "broken{"}
    queries = Queries(get=pages.fetch, base_url=f"http://127.0.0.1:{port}", queries=promql)
    memory, p99 = [await queries.fetch(term) for term in queries.terms]
    await runner.cleanup()
    assert asked == ["mem + 1", "broken{"]
    assert memory == (Point("memory", {"instance": "10.0.0.1:8000"}, 0.25),)
    assert p99 == Failure(Cause.STATUS, "400")


async def test_a_real_prometheus(pages: Pages, tmp_path: Path) -> None:
    """Skipped where the program is not installed, except in CI."""
    program = shutil.which("prometheus")
    if program is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("prometheus is not installed: make deps")
    assert program is not None
    port = free_port()
    config = {
        "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms"},
        "scrape_configs": [{"job_name": "self", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}],
    }
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))
    process = await asyncio.create_subprocess_exec(
        program,
        f"--config.file={tmp_path}/prometheus.yml",
        f"--storage.tsdb.path={tmp_path}/data",
        f"--web.listen-address=127.0.0.1:{port}",
        stderr=asyncio.subprocess.DEVNULL,
    )
    queries = Queries(
        get=pages.fetch, base_url=f"http://127.0.0.1:{port}", queries={"memory": "up * 0.5", "waiting": "up{"}
    )
    try:
        found: Any = ()
        deadline = time.monotonic() + 30
        while (not found or isinstance(found, Failure)) and time.monotonic() < deadline:
            await asyncio.sleep(0.2)
            found = await queries.fetch("memory")
        wrong = await queries.fetch("waiting")
    finally:
        process.terminate()
        await process.wait()
    reading = read_source(Source.PROMETHEUS, found, None, label="instance", now=5.0)
    assert isinstance(reading, Reading)
    sample = keyed(reading.samples, Join.ENDPOINT).get(f"127.0.0.1:{port}")
    assert sample is not None
    assert sample.memory == 0.5
    assert wrong == Failure(Cause.STATUS, "400")

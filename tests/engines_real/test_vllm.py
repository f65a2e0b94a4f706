"""What a real vLLM shows: its metrics page as a sample, its queue, and the ORCA header."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from extproc.engines import reading
from extproc.engines.reading import OWN, Reading, Source
from extproc.model.telemetry import EngineSample
from tests.engines_real.installed import is_installed
from tests.engines_real.vllm import MODEL, SEQUENCES, VllmServer

PAGE = Path(__file__).parents[1] / "engines" / "pages" / "vllm_metrics.txt"

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="session")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    if not is_installed("vllm"):
        pytest.skip("vLLM is not installed: its CPU build needs a wheel of torch 2.13.0+cpu within pip's reach")
    server = VllmServer(tmp_path_factory.mktemp("vllm"))
    with ExitStack() as ending:
        ending.callback(server.stop)
        server.start()
        yield server


async def complete(
    server: VllmServer, *, max_tokens: int, prompt: str = "hello", **headers: str
) -> tuple[Any, Any]:
    """The answer and its headers."""
    body = {"model": MODEL, "prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True}
    async with (
        aiohttp.ClientSession(
            headers={name.replace("_", "-"): value for name, value in headers.items()}
        ) as session,
        session.post(f"{server.url}/v1/completions", json=body) as answer,
    ):
        assert answer.status == 200, await answer.text()
        return await answer.json(), answer.headers


def look(server: VllmServer, before: Reading | None = None, *, now: float = 0.0) -> Reading:
    counters = before.counters if before else None
    found = reading.read(Source.VLLM, server.metrics().encode(), counters, now=now)
    assert isinstance(found, Reading), found
    return found


def sample(found: Reading) -> EngineSample:
    return found.samples[OWN]


async def test_latency_and_tokens_since_the_look_before(vllm: VllmServer) -> None:
    before = look(vllm)
    for _ in range(3):
        answer, _ = await complete(vllm, max_tokens=10)
        assert answer["usage"]["completion_tokens"] == 10
    after = sample(look(vllm, before, now=10.0))
    assert after.rates["vllm:generation_tokens_total"] == 3.0
    assert after.p99_s is not None and after.ttft_p99_s is not None
    assert 0 < after.ttft_p99_s <= after.p99_s
    assert (after.running, after.waiting) == (0, 0)


def is_full(seen: EngineSample) -> bool:
    assert seen.running is not None and seen.waiting is not None and seen.kv_usage is not None
    assert seen.running <= SEQUENCES
    assert seen.kv_usage <= 1
    return seen.running > 1 and seen.waiting > 0 and seen.kv_usage > 0.2


async def test_queue_and_kv_usage(vllm: VllmServer) -> None:
    busy = [asyncio.create_task(complete(vllm, max_tokens=900)) for _ in range(6 * SEQUENCES)]
    while not is_full(sample(await asyncio.to_thread(look, vllm))):
        assert not all(task.done() for task in busy), "never seen full"
        await asyncio.sleep(0.02)
    for task in busy:
        task.cancel()
    await asyncio.gather(*busy, return_exceptions=True)


async def test_the_same_prompt_hits_the_prefix_cache(vllm: VllmServer) -> None:
    prompt = "the same hundred and more letters " * 5
    await complete(vllm, max_tokens=1, prompt=prompt)
    before = look(vllm)
    await complete(vllm, max_tokens=1, prompt=prompt)
    rate = sample(look(vllm, before, now=5.0)).prefix_hit_rate
    assert rate is not None and 0.5 < rate <= 1


async def test_orca_header(vllm: VllmServer) -> None:
    _, headers = await complete(vllm, max_tokens=1, endpoint_load_metrics_format="JSON")
    kind, _, told = headers["endpoint-load-metrics"].partition(" ")
    assert kind == "JSON"
    assert set(json.loads(told)["named_metrics"]) >= {"num_requests_waiting", "kv_cache_usage_perc"}


async def test_the_captured_page_has_the_families_that_are_read(vllm: VllmServer) -> None:
    """What a server has after some work, without the creation times; the page may tell of later releases' too."""
    await complete(vllm, max_tokens=2)

    def families(page: str) -> set[str]:
        return {name for name in re.findall(r"^# TYPE (vllm:\S+)", page, re.MULTILINE) if "_created" not in name}

    assert families(vllm.metrics()) == families(PAGE.read_text())

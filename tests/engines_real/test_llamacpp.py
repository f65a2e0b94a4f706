"""What a real llama.cpp server shows: answers, its slots and queue, metrics."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import aiohttp

from extproc.engines import reading
from extproc.engines.reading import OWN, Reading, Source
from extproc.model.telemetry import EngineSample
from tests.engines_real.llamacpp import MODEL, SLOTS, LlamaCppServer

PAGE = Path(__file__).parents[1] / "engines" / "pages" / "llamacpp.txt"


async def chat(server: LlamaCppServer, *, max_tokens: int) -> dict[str, object]:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": max_tokens}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{server.url}/v1/chat/completions", json=body | {"ignore_eos": True}) as answer,
    ):
        assert answer.status == 200, await answer.text()
        usage: dict[str, object] = (await answer.json())["usage"]
        return usage


def look(server: LlamaCppServer, before: Reading | None = None, *, now: float = 0.0) -> Reading:
    counters = before.counters if before else None
    found = reading.read(Source.LLAMACPP, server.metrics().encode(), counters, now=now)
    assert isinstance(found, Reading), found
    return found


def sample(found: Reading) -> EngineSample:
    return found.samples[OWN]


async def test_answers_with_usage(llamacpp: LlamaCppServer) -> None:
    usage = await chat(llamacpp, max_tokens=12)
    assert usage["completion_tokens"] == 12


async def test_more_requests_than_slots_wait(llamacpp: LlamaCppServer) -> None:
    busy = [asyncio.create_task(chat(llamacpp, max_tokens=900)) for _ in range(3 * SLOTS)]
    most_running = most_waiting = 0.0
    while not all(task.done() for task in busy):
        seen = sample(await asyncio.to_thread(look, llamacpp))
        assert seen.running is not None and seen.waiting is not None
        most_running, most_waiting = max(most_running, seen.running), max(most_waiting, seen.waiting)
    assert [(await task)["completion_tokens"] for task in busy] == [900] * len(busy)
    assert most_running == SLOTS
    assert most_waiting > 0


async def test_tokens_become_rates(llamacpp: LlamaCppServer) -> None:
    before = look(llamacpp)
    await chat(llamacpp, max_tokens=50)
    after = sample(look(llamacpp, before, now=5.0))
    assert after.rates["llamacpp:tokens_predicted_total"] == 10.0
    assert (after.memory, after.kv_usage) == (None, None)


def test_the_captured_page_shows_what_a_server_shows(llamacpp: LlamaCppServer) -> None:
    def families(page: str) -> set[str]:
        return set(re.findall(r"^# TYPE (\S+)", page, re.MULTILINE))

    assert families(PAGE.read_text()) == families(llamacpp.metrics())

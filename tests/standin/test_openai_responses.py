"""The official client's responses API."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from openai import AsyncOpenAI


@pytest.fixture
async def client(engine: str) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{engine}/v1", api_key="key", max_retries=0) as client:
        yield client


async def test_plain(client: AsyncOpenAI) -> None:
    answer = await client.responses.create(model="m", input="one two", max_output_tokens=50)
    assert answer.output_text == "stand-in: max_tokens=50"
    assert answer.status == "completed"
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (2, 2)
    assert answer.model_extra["received"]["params"] == {"model": "m", "max_output_tokens": 50}


async def test_plain_that_is_cut(client: AsyncOpenAI) -> None:
    answer = await client.responses.create(model="m", input="one", max_output_tokens=1)
    assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")


async def test_streamed_events(client: AsyncOpenAI) -> None:
    stream = await client.responses.create(model="m", input="one", temperature=0.7, stream=True)
    events = [event async for event in stream]
    assert [event.type for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(10))
    assert events[0].model_extra["received"]["path"] == "/v1/responses"
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == events[6].text
    assert events[-1].response.output_text == "stand-in: temperature=0.7"


async def test_a_cut_stream_ends_incomplete(client: AsyncOpenAI) -> None:
    stream = await client.responses.create(model="m", input="one", max_output_tokens=1, stream=True)
    events = [event async for event in stream]
    assert events[-1].type == "response.incomplete"


async def test_the_clients_own_accumulation(client: AsyncOpenAI) -> None:
    """Its stream helper rebuilds the response event by event and fails on any that is missing."""
    async with client.responses.stream(model="m", input="one", top_p=0.9) as stream:
        final = await stream.get_final_response()
    assert final.output_text == "stand-in: top_p=0.9"

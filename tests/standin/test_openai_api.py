"""The official client, unchanged."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import AsyncIterator

import aiohttp
import pytest
from openai import AsyncOpenAI, NotFoundError

ASK = [{"role": "user", "content": "where is my order"}]


@pytest.fixture
async def client(engine: str) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{engine}/v1", api_key="key", max_retries=0) as client:
        yield client


async def test_chat(client: AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(
        model="m", messages=ASK, temperature=0.3, max_tokens=120, extra_headers={"x-llm-tier": "strict"}
    )
    assert answer.model == "m"
    assert answer.choices[0].message.content == "stand-in: temperature=0.3 max_tokens=120 tier=strict"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.prompt_tokens == 4
    assert answer.usage.completion_tokens == 4
    received = answer.model_extra["received"]
    assert received["path"] == "/v1/chat/completions"
    assert received["params"] == {"model": "m", "temperature": 0.3, "max_tokens": 120}
    assert received["headers"]["authorization"] == ["***"]


async def test_chat_with_several_choices_that_are_cut(client: AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model="m", messages=ASK, n=2, max_completion_tokens=1)
    assert [(c.index, c.finish_reason) for c in answer.choices] == [(0, "length"), (1, "length")]
    assert answer.usage.completion_tokens == 2


async def test_streaming_chat(client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(model="m", messages=ASK, temperature=0.9, stream=True)
    chunks = [chunk async for chunk in stream]
    said = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices[0].delta.content]
    assert said == ["stand-in: ", "temperature=0.9"]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[0].model_extra["received"]["params"]["stream"] is True
    assert "received" not in chunks[1].model_extra
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, None, None, "stop"]
    assert not any("usage" in chunk.model_fields_set for chunk in chunks)


async def test_streaming_chat_of_several_choices_with_usage(client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="m", messages=ASK, n=2, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert {chunk.choices[0].index for chunk in chunks[:-1]} == {0, 1}
    assert all("usage" in chunk.model_fields_set and chunk.usage is None for chunk in chunks[:-1])
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 4
    assert chunks[-1].usage.total_tokens == 8


async def test_a_stream_ends_with_done(http: aiohttp.ClientSession) -> None:
    async with http.post("/v1/chat/completions", json={"stream": True}) as answer:
        text = await answer.text()
    assert answer.content_type == "text/event-stream"
    assert text.endswith("\n\ndata: [DONE]\n\n")
    assert text.count("[DONE]") == 1


async def test_completions(client: AsyncOpenAI) -> None:
    answer = await client.completions.create(model="m", prompt=["one two", "three"], top_p=0.85)
    assert [choice.text for choice in answer.choices] == ["stand-in: top_p=0.85"] * 2
    assert answer.usage.prompt_tokens == 3


async def test_streaming_completions(client: AsyncOpenAI) -> None:
    stream = await client.completions.create(model="m", prompt="one", max_tokens=1, stream=True)
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].text for chunk in chunks) == "stand-in: max_tokens=1"
    assert chunks[-1].choices[0].finish_reason == "length"


async def test_embeddings(client: AsyncOpenAI) -> None:
    """The client asks for base64 by itself and decodes it."""
    answer = await client.embeddings.create(model="m", input=["one", "two"], dimensions=16)
    assert answer.model_extra["received"]["params"]["encoding_format"] == "base64"
    assert [len(item.embedding) for item in answer.data] == [16, 16]
    assert answer.data[0].embedding != answer.data[1].embedding
    assert answer.usage.prompt_tokens == 2


async def test_embeddings_are_the_same_numbers_in_both_encodings(request_of) -> None:
    from extproc.standin.openai_api import _vector, embeddings

    received = request_of(b'{"input": [1, 2, 3]}')
    (item,) = embeddings(received).document["data"]
    packed = _vector(bytes.fromhex(received.sha256), 0, 8, True)
    assert list(struct.unpack("<8f", base64.b64decode(packed))) == item["embedding"]


async def test_models(client: AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == ["stand-in"]
    assert (await client.models.retrieve("meta-llama/Llama-3")).id == "meta-llama/Llama-3"


async def test_transcription_of_an_upload(client: AsyncOpenAI, http: aiohttp.ClientSession) -> None:
    answer = await client.audio.transcriptions.create(model="whisper", file=("a.wav", b"RIFF" * 1000))
    assert answer.text == "stand-in: no parameters"
    assert answer.model_extra["bytes"] == answer.model_extra["received"]["body_bytes"] > 4000
    async with http.get(f"/__received/body/{answer.model_extra['sha256']}") as held:
        assert b"RIFF" * 1000 in await held.read()


async def test_an_unknown_path_is_an_error_the_client_understands(client: AsyncOpenAI) -> None:
    with pytest.raises(NotFoundError) as caught:
        await client.moderations.create(input="x")
    assert caught.value.code == "not_found"


async def test_a_body_that_is_no_json_is_still_answered(http: aiohttp.ClientSession) -> None:
    async with http.post("/v1/chat/completions", data=b'{"temperature": ') as answer:
        document = json.loads(await answer.read())
    assert answer.status == 200
    assert document["received"]["body_bytes"] == 16

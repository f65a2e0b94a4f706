from __future__ import annotations

import json

import aiohttp

ASK = {"model": "claude", "max_tokens": 64, "messages": [{"role": "user", "content": "one two three"}]}


async def test_plain(http: aiohttp.ClientSession) -> None:
    async with http.post("/v1/messages", json=ASK, headers={"x-api-key": "k"}) as answer:
        message = await answer.json()
    assert message["content"] == [{"type": "text", "text": "stand-in: max_tokens=64"}]
    assert (message["type"], message["role"], message["model"]) == ("message", "assistant", "claude")
    assert message["stop_reason"] == "end_turn"
    assert message["usage"] == {"input_tokens": 3, "output_tokens": 2}
    assert message["received"]["headers"]["x-api-key"] == ["***"]


async def test_plain_that_is_cut(http: aiohttp.ClientSession) -> None:
    async with http.post("/v1/messages", json=ASK | {"max_tokens": 1}) as answer:
        assert (await answer.json())["stop_reason"] == "max_tokens"


async def test_streamed_events(http: aiohttp.ClientSession) -> None:
    async with http.post("/v1/messages", json=ASK | {"stream": True}) as answer:
        text = await answer.text()
    lines = [block.split("\n") for block in text.strip().split("\n\n")]
    events = [json.loads(data.removeprefix("data: ")) for _, data in lines]
    assert [name.removeprefix("event: ") for name, _ in lines] == [event["type"] for event in events]
    assert [event["type"] for event in events] == [
        "message_start",
        "content_block_start",
        "ping",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert events[0]["message"]["content"] == []
    assert events[0]["received"]["params"]["max_tokens"] == 64
    said = [event["delta"]["text"] for event in events if event["type"] == "content_block_delta"]
    assert said == ["stand-in: ", "max_tokens=64"]
    assert events[-2]["delta"]["stop_reason"] == "end_turn"
    assert events[-2]["usage"] == {"output_tokens": 2}


async def test_count_tokens(http: aiohttp.ClientSession) -> None:
    async with http.post("/v1/messages/count_tokens", json=ASK | {"system": "be brief"}) as answer:
        assert (await answer.json())["input_tokens"] == 5

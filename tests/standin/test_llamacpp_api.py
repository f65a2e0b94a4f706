from __future__ import annotations

import json

import aiohttp
import pytest


@pytest.mark.parametrize("path", ["/completion", "/completions"])
async def test_plain(http: aiohttp.ClientSession, path: str) -> None:
    async with http.post(path, json={"prompt": "one two", "n_predict": 40, "temperature": 0.3}) as answer:
        document = await answer.json()
    assert document["content"] == "stand-in: temperature=0.3 max_tokens=40"
    assert (document["stop"], document["stop_type"]) == (True, "eos")
    assert (document["tokens_evaluated"], document["tokens_predicted"]) == (2, 3)
    assert document["generation_settings"] == document["received"]["params"]


async def test_unlimited_length_is_no_cut(http: aiohttp.ClientSession) -> None:
    async with http.post("/completion", json={"n_predict": -1}) as answer:
        assert (await answer.json())["stop_type"] == "eos"


async def test_streamed_chunks(http: aiohttp.ClientSession) -> None:
    async with http.post("/completion", json={"n_predict": 1, "stream": True}) as answer:
        text = await answer.text()
    chunks = [json.loads(block.removeprefix("data: ")) for block in text.strip().split("\n\n")]
    assert [(chunk["content"], chunk["stop"]) for chunk in chunks] == [
        ("stand-in: ", False),
        ("max_tokens=1", False),
        ("", True),
    ]
    assert "received" in chunks[0]
    assert chunks[-1]["stop_type"] == "limit"


async def test_tokens_lose_nothing(http: aiohttp.ClientSession) -> None:
    async with http.post("/tokenize", json={"content": "订单 42"}) as answer:
        tokens = (await answer.json())["tokens"]
    assert len(tokens) == 9
    async with http.post("/detokenize", json={"tokens": tokens}) as answer:
        assert (await answer.json())["content"] == "订单 42"


async def test_tokens_out_of_range_are_left_out(http: aiohttp.ClientSession) -> None:
    async with http.post("/detokenize", json={"tokens": [104, 300, -1, "x", 105]}) as answer:
        assert (await answer.json())["content"] == "hi"


async def test_health(http: aiohttp.ClientSession) -> None:
    async with http.get("/health") as answer:
        assert (await answer.json())["status"] == "ok"

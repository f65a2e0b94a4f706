"""Metadata and health as tritonclient asks for them, generate as curl would."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import tritonclient.http as triton


async def test_health_and_metadata_satisfy_the_client(engine: str) -> None:
    def ask() -> tuple:
        client = triton.InferenceServerClient(engine.removeprefix("http://"))
        return (
            client.is_server_live(),
            client.is_server_ready(),
            client.is_model_ready("m", "2"),
            client.get_server_metadata(),
            client.get_model_metadata("m", "2"),
            client.get_model_config("m"),
        )

    live, ready, model_ready, server, metadata, config = await asyncio.to_thread(ask)
    assert (live, ready, model_ready) == (True, True, True)
    assert server["name"] == "stand-in"
    assert (metadata["name"], metadata["versions"]) == ("m", ["2"])
    expected = [("text_input", "BYTES"), ("max_tokens", "INT32"), ("temperature", "FP32"), ("top_p", "FP32")]
    assert [(i["name"], i["datatype"]) for i in metadata["inputs"]] == expected
    assert {"text_output", "received", "echo_text_input"} <= {o["name"] for o in metadata["outputs"]}
    assert config["name"] == "m"
    assert [(i["name"], i["data_type"]) for i in config["input"]][:2] == [
        ("text_input", "TYPE_STRING"),
        ("max_tokens", "TYPE_INT32"),
    ]


async def test_generate(http: aiohttp.ClientSession) -> None:
    body = {"text_input": "one two", "max_tokens": 40, "parameters": {"temperature": 0.3, "priority": 1}}
    async with http.post("/v2/models/m/versions/3/generate", json=body) as answer:
        document = await answer.json()
    assert document["text_output"] == "stand-in: temperature=0.3 max_tokens=40 priority=1"
    assert (document["model_name"], document["model_version"]) == ("m", "3")
    assert document["usage"] == {"prompt_tokens": 2, "completion_tokens": 4, "finish_reason": "stop"}
    assert document["received"]["params"] == {
        "max_tokens": 40,
        "parameters": {"temperature": 0.3, "priority": 1},
    }


async def test_generate_stream(http: aiohttp.ClientSession) -> None:
    async with http.post("/v2/models/m/generate_stream", json={"text_input": "x", "max_tokens": 1}) as answer:
        text = await answer.text()
    chunks = [json.loads(block.removeprefix("data: ")) for block in text.strip().split("\n\n")]
    assert [chunk["text_output"] for chunk in chunks] == ["stand-in: ", "max_tokens=1"]
    assert chunks[0]["received"]["path"] == "/v2/models/m/generate_stream"
    assert chunks[-1]["usage"]["finish_reason"] == "length"

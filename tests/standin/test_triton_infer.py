"""tritonclient with binary tensors both ways, and what Triton refuses."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import numpy as np
import pytest
import tritonclient.http as triton


def inputs(*, binary: bool = True) -> list[triton.InferInput]:
    tensors = {
        "text_input": np.array(["订单在哪".encode()], dtype=np.object_),
        "max_tokens": np.array([120], dtype=np.int32),
        "temperature": np.array([0.3], dtype=np.float32),
    }
    given = []
    for (name, array), kind in zip(tensors.items(), ("BYTES", "INT32", "FP32"), strict=True):
        tensor = triton.InferInput(name, list(array.shape), kind)
        # A string tensor that goes as JSON is given as text by the client itself.
        tensor.set_data_from_numpy(array, binary_data=binary)
        given.append(tensor)
    return given


async def infer(engine: str, given: list[triton.InferInput], **options: object) -> triton.InferResult:
    def ask() -> triton.InferResult:
        client = triton.InferenceServerClient(engine.removeprefix("http://"))
        return client.infer("m", given, **options)

    return await asyncio.to_thread(ask)


@pytest.mark.parametrize("binary", [True, False])
async def test_inputs_come_back_with_the_report(engine: str, binary: bool) -> None:
    result = await infer(engine, inputs(binary=binary), request_id="r1", priority=2)
    assert result.as_numpy("echo_text_input")[0].decode() == "订单在哪"
    assert result.as_numpy("echo_max_tokens").tolist() == [120]
    assert result.as_numpy("echo_temperature").dtype == np.float32
    line = result.as_numpy("text_output")[0].decode()
    assert line == "stand-in: temperature=0.3 max_tokens=120 priority=2"
    report = json.loads(result.as_numpy("received")[0])
    assert report["params"]["inputs"] == {"max_tokens": 120, "temperature": 0.3}
    assert report["params"]["parameters"]["priority"] == 2
    assert ("inference-header-content-length" in report["headers"]) is binary
    assert result.get_response()["received"] == report
    assert result.get_response()["id"] == "r1"


async def test_only_requested_outputs_each_in_its_form(engine: str) -> None:
    outputs = [
        triton.InferRequestedOutput("echo_temperature", binary_data=False),
        triton.InferRequestedOutput("echo_max_tokens", binary_data=True),
    ]
    result = await infer(engine, inputs(), outputs=outputs)
    temperature, max_tokens = result.get_response()["outputs"]
    assert temperature["data"] == pytest.approx([0.3])
    assert max_tokens["parameters"] == {"binary_data_size": 4}
    assert result.as_numpy("echo_max_tokens").tolist() == [120]
    assert result.as_numpy("echo_temperature").tolist() == pytest.approx([0.3])
    assert result.as_numpy("received") is None


async def test_a_compressed_request(engine: str) -> None:
    result = await infer(engine, inputs(), request_compression_algorithm="gzip")
    assert result.as_numpy("echo_max_tokens").tolist() == [120]


async def test_an_unknown_output_is_refused(engine: str) -> None:
    with pytest.raises(triton.InferenceServerException, match="unexpected inference output 'nope'"):
        await infer(engine, inputs(), outputs=[triton.InferRequestedOutput("nope")])


async def test_plain_json_without_binary_output_is_answered_as_json(http: aiohttp.ClientSession) -> None:
    body = {"inputs": [{"name": "x", "datatype": "INT32", "shape": [2, 1], "data": [[1], [2]]}]}
    async with http.post("/v2/models/m/versions/4/infer", json=body) as answer:
        document = await answer.json()
    assert "Inference-Header-Content-Length" not in answer.headers
    assert document["outputs"][0] == {"name": "echo_x", "datatype": "INT32", "shape": [2, 1], "data": [1, 2]}
    assert (document["model_name"], document["model_version"]) == ("m", "4")


HEAD = json.dumps(
    {"inputs": [{"name": "x", "datatype": "INT32", "shape": [1], "parameters": {"binary_data_size": 4}}]}
).encode()


@pytest.mark.parametrize(
    ("body", "length"),
    [
        (HEAD + b"\x01\x00\x00\x00", len(HEAD) - 1),
        (HEAD + b"\x01\x00\x00\x00", len(HEAD) + 1),
        (HEAD + b"\x01\x00\x00", len(HEAD)),
        (HEAD + b"\x01\x00\x00\x00\x00", len(HEAD)),
        (HEAD, len(HEAD) + 1),
        (b'{"inputs": []}', 15),
        (HEAD + b"\x01\x00\x00\x00", "-1"),
        (HEAD + b"\x01\x00\x00\x00", "9" * 5000),
        (HEAD, None),
        (b"{", None),
    ],
)
async def test_a_tail_that_does_not_match_is_refused(
    http: aiohttp.ClientSession, body: bytes, length: int | str | None
) -> None:
    headers = {} if length is None else {"Inference-Header-Content-Length": str(length)}
    async with http.post("/v2/models/m/infer", data=body, headers=headers) as answer:
        document = await answer.json()
    assert answer.status == 400
    assert isinstance(document["error"], str)
    assert document["received"]["body_bytes"] == len(body)


async def test_the_tail_that_matches_is_accepted(http: aiohttp.ClientSession) -> None:
    headers = {"Inference-Header-Content-Length": str(len(HEAD))}
    async with http.post("/v2/models/m/infer", data=HEAD + b"\x01\x00\x00\x00", headers=headers) as answer:
        document = await answer.json()
    assert (answer.status, document["outputs"][0]["data"]) == (200, [1])

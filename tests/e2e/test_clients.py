"""Clients as people use them, unchanged, through Envoy: OpenAI's, Triton's, and plain HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import openai
import pytest
import tritonclient.http as triton

from tests.e2e.asking import CREATIVE, NORMAL, STRICT, ask, new_id
from tests.e2e.running import Engine, Stack


@pytest.fixture
def openai_client(stack: Stack) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{stack.url}/v1", api_key="sk-of-a-client", max_retries=0) as client:
        yield client


def user(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def received(answer: Any) -> dict[str, Any]:
    """The stand-in's report, which the client keeps as a field it does not know."""
    report = answer.model_extra["received"]
    assert report["headers"]["authorization"] == ["***"]
    assert isinstance(report, dict)
    return report


def test_openai_chat(openai_client: openai.OpenAI) -> None:
    answer = openai_client.chat.completions.create(
        model="demo", messages=user(STRICT), temperature=1.0, max_completion_tokens=5000
    )
    report = received(answer)
    assert report["params"] == {
        "model": "demo",
        "temperature": 0.3,
        "top_p": 0.85,
        "max_completion_tokens": 120,
        "priority": 0,
    }
    assert report["headers"]["x-llm-tier"] == ["strict"]
    assert "temperature=0.3" in (answer.choices[0].message.content or "")


def test_openai_chat_stream(openai_client: openai.OpenAI) -> None:
    stream = openai_client.chat.completions.create(
        model="demo", messages=user(CREATIVE), stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    report = received(chunks[0])
    assert report["params"]["temperature"] == 0.9
    assert report["params"]["stream"] is True
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert "tier=creative" in text
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens > 0


def test_openai_completions(openai_client: openai.OpenAI) -> None:
    answer = openai_client.completions.create(model="demo", prompt=STRICT, max_tokens=5000)
    assert received(answer)["params"]["max_tokens"] == 120
    assert "tier=strict" in answer.choices[0].text


def test_openai_embeddings(openai_client: openai.OpenAI) -> None:
    answer = openai_client.embeddings.create(model="demo", input=[STRICT, NORMAL])
    assert [len(each.embedding) for each in answer.data] == [8, 8]
    assert received(answer)["params"]["priority"] == 0


def test_openai_responses(openai_client: openai.OpenAI) -> None:
    answer = openai_client.responses.create(model="demo", input=STRICT, max_output_tokens=5000)
    assert "tier=strict" in answer.output_text
    assert received(answer)["params"]["max_output_tokens"] == 120


def test_openai_responses_stream(openai_client: openai.OpenAI) -> None:
    kinds = [each.type for each in openai_client.responses.create(model="demo", input=STRICT, stream=True)]
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"


def test_openai_models_pass(openai_client: openai.OpenAI) -> None:
    assert [model.id for model in openai_client.models.list()] == ["stand-in"]


def test_openai_client_understands_a_refusal(openai_client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        openai_client.chat.completions.create(model="demo", messages=user(STRICT), temperature="hot")  # type: ignore[call-overload]
    assert (refused.value.code, refused.value.param) == ("invalid_parameter", "temperature")


# ── Triton ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def triton_client(stack: Stack) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(f"127.0.0.1:{stack.port}") as client:
        yield client


def tensor(name: str, kind: str, values: Any, *, binary: bool) -> triton.InferInput:
    made = triton.InferInput(name, list(values.shape), kind)
    made.set_data_from_numpy(values, binary_data=binary)
    return made


def text_tensor(text: str, *, binary: bool) -> triton.InferInput:
    return tensor("text_input", "BYTES", np.array([text.encode()], dtype=np.object_), binary=binary)


def test_triton_client_sees_server_and_model(triton_client: triton.InferenceServerClient) -> None:
    assert triton_client.is_server_live()
    assert triton_client.is_server_ready()
    assert triton_client.is_model_ready("m")
    assert triton_client.get_model_metadata("m")["name"] == "m"


@pytest.mark.parametrize("binary", [True, False])
def test_a_length_tensor_is_capped_in_place(
    triton_client: triton.InferenceServerClient, engine: Engine, binary: bool
) -> None:
    weights = np.arange(1000, dtype=np.float32).reshape(10, 100)
    inputs = [
        text_tensor(STRICT, binary=binary),
        tensor("max_tokens", "INT32", np.array([[5000]], dtype=np.int32), binary=binary),
        tensor("temperature", "FP32", np.array([[1.5]], dtype=np.float32), binary=binary),
        tensor("weights", "FP32", weights, binary=binary),
    ]
    request_id = new_id()
    result = triton_client.infer("m", inputs, headers={"x-request-id": request_id})
    assert result.as_numpy("echo_max_tokens").tolist() == [[120]]
    assert result.as_numpy("echo_max_tokens").dtype == np.int32
    (temperature,) = result.as_numpy("echo_temperature").ravel().tolist()
    assert 0.2999 < temperature <= np.float32(0.3)
    assert result.as_numpy("echo_text_input").tolist() == [STRICT.encode()]
    assert np.array_equal(result.as_numpy("echo_weights"), weights)
    report = engine.one(request_id)
    assert report["headers"]["x-llm-tier"] == ["strict"]
    if binary:
        head = int(report["headers"]["inference-header-content-length"][0])
        assert json.loads(engine.body(report)[:head])["inputs"][1]["name"] == "max_tokens"


def test_tensors_that_no_rule_names_keep_their_bytes(
    triton_client: triton.InferenceServerClient, engine: Engine
) -> None:
    """A lower length and no class to write: only the priority is new, and it stands in the JSON part."""
    noise = np.random.default_rng(7).integers(0, 255, 100_000, dtype=np.uint8)
    inputs = [tensor("noise", "UINT8", noise, binary=True), text_tensor(NORMAL, binary=True)]
    request_id = new_id()
    result = triton_client.infer("m", inputs, headers={"x-request-id": request_id}, request_id="my-id")
    assert result.get_response()["id"] == "my-id"
    body = engine.body(engine.one(request_id))
    assert noise.tobytes() in body
    head = int(engine.one(request_id)["headers"]["inference-header-content-length"][0])
    assert json.loads(body[:head])["parameters"]["priority"] == 2


def test_a_priority_of_the_triton_client_is_replaced(
    triton_client: triton.InferenceServerClient, engine: Engine
) -> None:
    request_id = new_id()
    triton_client.infer("m", [text_tensor(NORMAL, binary=True)], priority=1, headers={"x-request-id": request_id})
    assert engine.one(request_id)["params"]["parameters"]["priority"] == 2


def test_a_tail_that_does_not_add_up_is_refused(front: int) -> None:
    head = json.dumps(
        {"inputs": [{"name": "a", "datatype": "UINT8", "shape": [4], "parameters": {"binary_data_size": 4}}]}
    ).encode()
    headers = {"inference-header-content-length": str(len(head)), "content-type": "application/octet-stream"}
    ask(front, "/v2/models/m/infer", head + b"123", headers).error(400, "invalid_tensors")
    ask(front, "/v2/models/m/infer", head, {**headers, "inference-header-content-length": "99999"}).error(
        400, "invalid_tensors"
    )


def test_generate_by_plain_http(front: int) -> None:
    answer = ask(front, "/v2/models/m/generate", {"text_input": STRICT, "max_tokens": 5000})
    assert answer.params["max_tokens"] == 120
    assert "tier=strict" in answer.json()["text_output"]


def test_generate_stream_by_plain_http(stack: Stack) -> None:
    answer = ask(stack.port, "/v2/models/m/generate_stream", {"text_input": STRICT, "max_tokens": 5000})
    assert answer.values("content-type") == ["text/event-stream"]
    events = [json.loads(line[6:]) for line in answer.body.split(b"\n\n") if line.startswith(b"data: ")]
    assert events[0]["received"]["params"]["max_tokens"] == 120
    assert "tier=strict" in "".join(event["text_output"] for event in events)

"""What a real tritonserver does with the models of deploy/triton: answers, delay, order of the queue, metrics."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc.aio as triton
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.utils import InferenceServerException

from extproc.engines import reading
from extproc.engines.reading import OWN, Reading, Source
from tests.engines_real.fixtures import Tritons
from tests.engines_real.server import get, until
from tests.engines_real.triton import INSTANCES, STREAM, WHOLE, TritonServer

PAGE = Path(__file__).parents[1] / "engines" / "pages" / "triton.txt"
ROUND = 8 * INSTANCES


def post(server: TritonServer, path: str, body: dict[str, Any]) -> bytes:
    request = urllib.request.Request(f"{server.url}/v2/models/{path}", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=30) as answer:
        return bytes(answer.read())


def took_s(server: TritonServer, **fields: Any) -> float:
    began = time.monotonic()
    server.generate("x", **fields)
    return time.monotonic() - began


def test_two_servers_answer_under_their_own_names(tritons: Tritons) -> None:
    for server in tritons:
        answer = server.generate("to be or", max_tokens=4, temperature=0.5, priority=1)
        assert answer["text_output"] == "to be or to"
        assert answer["server"] == server.name
        assert json.loads(answer["received"]) == {"max_tokens": 4, "temperature": 0.5, "priority": 1}


def test_grpc_health(tritons: Tritons) -> None:
    for server in tritons:
        with grpc.insecure_channel(server.grpc_address) as channel:
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_generate_stream_has_an_event_a_word(tritons: Tritons) -> None:
    stream = post(tritons[0], f"{STREAM}/generate_stream", {"text_input": "a b", "max_tokens": 3})
    events = [json.loads(event.removeprefix("data: ")) for event in stream.decode().split("\n\n") if event]
    assert [event["text_output"] for event in events] == ["a", " b", " a"]
    assert {event["server"] for event in events} == {tritons[0].name}


def test_infer_as_json(tritons: Tritons) -> None:
    said = {"name": "text_input", "shape": [1, 1], "datatype": "BYTES", "data": ["hello"]}
    limit = {"name": "max_tokens", "shape": [1, 1], "datatype": "INT32", "data": [2]}
    body = {"inputs": [said, limit], "parameters": {"colour": "red"}}
    outputs = {
        each["name"]: each["data"][0] for each in json.loads(post(tritons[0], f"{WHOLE}/infer", body))["outputs"]
    }
    assert outputs["text_output"] == "hello hello"
    assert json.loads(outputs["received"]) == {"colour": "red", "max_tokens": 2}


def test_a_delay_is_of_one_request_or_of_the_server(tritons: Tritons) -> None:
    slow, other = tritons
    assert took_s(slow, delay_ms=1000) >= 1
    assert took_s(slow) < 1
    slow.set_delay(1000)
    assert took_s(slow) >= 1
    assert took_s(slow, model=STREAM, max_tokens=1) >= 1
    assert took_s(other) < 1


def tensors(*numbers: str) -> list[triton.InferInput]:
    """The inputs of a request; `numbers` are those of the optional ones that it has."""
    said = triton.InferInput("text_input", [1, 1], "BYTES")
    said.set_data_from_numpy(np.full((1, 1), b"x", dtype=object))
    inputs = [said]
    for name in numbers:
        kind, dtype = ("INT32", np.int32) if name == "max_tokens" else ("FP32", np.float32)
        inputs.append(triton.InferInput(name, [1, 1], kind))
        inputs[-1].set_data_from_numpy(np.ones((1, 1), dtype))
    return inputs


async def waiting(server: TritonServer, number: int) -> None:
    line = f'nv_inference_pending_request_count{{model="{WHOLE}",version="1"}} {number}\n'
    await asyncio.to_thread(until, lambda: line in server.metrics(), what=f"{number} pending")


ALONE = [(), ("max_tokens",), ("temperature",), ("top_p",)]
"""Requests with different sets of tensors never share a batch: each of these takes an instance."""


async def occupy(group: asyncio.TaskGroup, server: TritonServer, client: triton.InferenceServerClient) -> None:
    """Every instance has a slow request for the next seconds."""
    assert len(ALONE) == INSTANCES
    for numbers in ALONE:
        group.create_task(client.infer(WHOLE, tensors(*numbers), priority=1, parameters={"delay_ms": 5000}))
    await asyncio.sleep(1)  # nothing tells that a request has arrived, only that it waits
    await waiting(server, 0)


async def test_a_higher_level_leaves_the_queue_first(tritons: Tritons) -> None:
    """Three rounds of batches wait behind slow ones; the last to come are the first to be served."""
    server, order = tritons[0], list[int]()
    async with triton.InferenceServerClient(server.grpc_address) as client:

        async def ask(level: int) -> None:
            await client.infer(WHOLE, tensors(), priority=level, parameters={"delay_ms": 300})
            order.append(level)

        async with asyncio.TaskGroup() as group:
            await occupy(group, server, client)
            for count, level in enumerate((3, 2, 1), 1):
                for _ in range(ROUND):
                    group.create_task(ask(level))
                await waiting(server, count * ROUND)
            assert order == []
    places = {level: [place for place, each in enumerate(order) if each == level] for level in (1, 2, 3)}
    assert max(places[1]) < min(places[3])
    # Instances take turns, so the first answer of a round may come beside the last one of the round before.
    assert sum(places[1]) < sum(places[2]) < sum(places[3])


async def test_queue_policy(tritons: Tritons) -> None:
    """A request gives up when its own timeout is over, and the lowest level has room for 64."""
    server = tritons[0]
    async with triton.InferenceServerClient(server.grpc_address) as client, asyncio.TaskGroup() as group:
        await occupy(group, server, client)
        with pytest.raises(InferenceServerException, match="Request timeout expired"):
            await client.infer(WHOLE, tensors(), timeout=50_000)
        for _ in range(64):
            group.create_task(client.infer(WHOLE, tensors(), priority=3))
        await waiting(server, 64)
        with pytest.raises(InferenceServerException, match="Exceeds maximum queue size"):
            await client.infer(WHOLE, tensors(), priority=3)
        await client.infer(WHOLE, tensors(), priority=1)


def test_a_stream_ends_when_its_client_leaves(tritons: Tritons) -> None:
    server = tritons[0]
    body = json.dumps({"text_input": "x", "max_tokens": 1000, "delay_ms": 50})
    head = f"POST /v2/models/{STREAM}/generate_stream HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.http_port)) as connection:
        connection.sendall((head + body).encode())
        assert connection.recv(100)
    left = re.compile(r"a client left after \d+ of 1000 words")
    until(lambda: left.search(server.log_path.read_text()), what="the end of the stream")


def families(page: str) -> set[str]:
    return set(re.findall(r"^# TYPE (\S+)", page, re.MULTILINE))


def test_the_captured_page_shows_what_a_server_shows(tritons: Tritons) -> None:
    assert families(PAGE.read_text()) == families(tritons[0].metrics())


def test_metrics_are_read_as_a_sample(tritons: Tritons) -> None:
    server = tritons[0]
    first = reading.read(Source.TRITON, server.metrics().encode(), None, now=0.0)
    assert isinstance(first, Reading), first
    for _ in range(5):
        server.generate("x")
    second = reading.read(Source.TRITON, server.metrics().encode(), first.counters, now=5.0)
    assert isinstance(second, Reading), second
    sample = second.samples[OWN]
    assert sample.waiting == 0
    assert sample.memory is None
    assert sample.rates["nv_inference_request_success"] == 1.0
    assert sample.p99_s is not None and sample.p99_s > 0


def test_killed_and_started_again_on_the_same_ports(tritons: Tritons) -> None:
    server, ports = tritons[1], (tritons[1].http_port, tritons[1].grpc_port, tritons[1].metrics_port)
    server.kill()
    assert server.shared_memory() == []
    with pytest.raises(urllib.error.URLError):
        get(f"{server.url}/v2/health/live")
    server.start()
    assert (server.http_port, server.grpc_port, server.metrics_port) == ports
    assert server.generate("x")["server"] == server.name


def test_stopped_leaves_nothing(tmp_path: Path, tritons: Tritons) -> None:
    """`tritons` only to skip without the engine: this server is one more."""
    server = TritonServer(tmp_path)
    server.start()
    before = (server.http_port, server.grpc_port, server.metrics_port)
    server.stop()
    assert not server.is_running
    assert server.shared_memory() == []
    for port in before:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
    server.start(new_ports=True)
    assert before != (server.http_port, server.grpc_port, server.metrics_port)
    assert server.generate("x")["server"] == server.name
    server.kill()

"""Triton's v2 protocol: server and model metadata, health and the generate extension."""

from __future__ import annotations

import re
from collections.abc import Iterator

from extproc.standin.echo import Echo, compose
from extproc.standin.receipt import Received
from extproc.standin.replies import Document, Plain, Reply, Stream

VERSION = "2.51.0"
"""The protocol level spoken, as a Triton server of that version does."""

_MODEL_PATH = re.compile(r"/v2/models/([^/]+)(?:/versions/([^/]+))?")
_INPUTS = (("text_input", "BYTES"), ("max_tokens", "INT32"), ("temperature", "FP32"), ("top_p", "FP32"))
_OUTPUTS = (
    ("text_output", "BYTES"),
    ("received", "BYTES"),
    *((f"echo_{name}", kind) for name, kind in _INPUTS),
)
_REQUIRED = "text_input"


def server(received: Received) -> Reply:
    """GET /v2."""
    return Plain({"name": "stand-in", "version": VERSION, "extensions": ["binary_tensor_data", "generate"]})


def live(received: Received) -> Reply:
    """GET /v2/health/live."""
    return Plain({"live": True})


def ready(received: Received) -> Reply:
    """GET /v2/health/ready and of a model."""
    return Plain({"ready": True})


def metadata(received: Received) -> Reply:
    """GET /v2/models/{m}: any name is a model."""
    return Plain(
        {
            "name": model_and_version(received)[0],
            "versions": [model_and_version(received)[1]],
            "platform": "stand-in",
            "inputs": [{"name": name, "datatype": kind, "shape": [-1]} for name, kind in _INPUTS],
            "outputs": [{"name": name, "datatype": kind, "shape": [-1]} for name, kind in _OUTPUTS],
        }
    )


def config(received: Received) -> Reply:
    """GET /v2/models/{m}/config."""
    inputs = [_tensor_config(name, kind) | {"optional": name != _REQUIRED} for name, kind in _INPUTS]
    return Plain(
        {
            "name": model_and_version(received)[0],
            "platform": "",
            "backend": "stand-in",
            "max_batch_size": 0,
            "input": inputs,
            "output": [_tensor_config(name, kind) for name, kind in _OUTPUTS],
            "model_transaction_policy": {"decoupled": False},
            "parameters": {},
        }
    )


def _tensor_config(name: str, datatype: str) -> Document:
    spelled = "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"
    return {"name": name, "data_type": spelled, "dims": [-1]}


def generate(received: Received) -> Reply:
    """POST /v2/models/{m}/generate."""
    echo = compose(received)
    return Plain(_generated(received, echo.line) | {"usage": _usage(echo)})


def generate_stream(received: Received) -> Reply:
    """POST /v2/models/{m}/generate_stream: a word each, and the connection says when it is over."""
    return Stream(_generated_words(received, compose(received)))


def _generated_words(received: Received, echo: Echo) -> Iterator[tuple[str, Document]]:
    for word in echo.words[:-1]:
        yield "", _generated(received, word)
    yield "", _generated(received, echo.words[-1]) | {"usage": _usage(echo)}


def _generated(received: Received, text: str) -> Document:
    name, version = model_and_version(received)
    return {"model_name": name, "model_version": version, "text_output": text}


def _usage(echo: Echo) -> Document:
    return {
        "prompt_tokens": echo.prompt_tokens,
        "completion_tokens": echo.completion_tokens,
        "finish_reason": "length" if echo.cut else "stop",
    }


def model_and_version(received: Received) -> tuple[str, str]:
    """From the path; a model without a version in it has version 1."""
    found = _MODEL_PATH.match(received.path)
    return (found[1], found[2] or "1") if found else ("stand-in", "1")

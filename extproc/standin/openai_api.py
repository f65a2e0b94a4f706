"""OpenAI's chat, completions, embeddings and models, as vLLM and llama.cpp serve them too."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from typing import Any

from extproc.standin.echo import Echo, compose
from extproc.standin.receipt import Received
from extproc.standin.replies import Document, Plain, Reply, Stream

MODEL = "stand-in"

CREATED = 1_700_000_000
"""Seconds since the epoch: a stand-in owns no clock, and equal requests get equal answers."""

MAX_CHOICES = 128
DIMENSIONS = 8
MAX_DIMENSIONS = 4096


def chat(received: Received) -> Reply:
    """POST /v1/chat/completions."""
    echo = compose(received)
    head = _head(received, "chatcmpl", "chat.completion")
    indexes = range(_positive(received.document.get("n"), 1, MAX_CHOICES))
    if received.document.get("stream") is True:
        events = _chat_chunks(head | {"object": "chat.completion.chunk"}, echo, indexes)
        return Stream(_with_usage(events, head, echo, received), done=True)
    message = {"role": "assistant", "content": echo.line, "refusal": None}
    choices = [
        {"index": index, "message": message, "logprobs": None, "finish_reason": finish(echo)} for index in indexes
    ]
    return Plain({**head, "choices": choices, "usage": _usage(echo, len(indexes))})


def _chat_chunks(head: Document, echo: Echo, indexes: range) -> Iterator[Document]:
    for index in indexes:
        yield _chunk(head, index, {"delta": {"role": "assistant", "content": ""}}, None)
        for word in echo.words:
            yield _chunk(head, index, {"delta": {"content": word}}, None)
        yield _chunk(head, index, {"delta": {}}, finish(echo))


def completions(received: Received) -> Reply:
    """POST /v1/completions: one answer per prompt and choice."""
    echo = compose(received)
    head = _head(received, "cmpl", "text_completion")
    wanted = _prompts(received.document.get("prompt")) * _positive(received.document.get("n"), 1, MAX_CHOICES)
    indexes = range(min(wanted, MAX_CHOICES))
    if received.document.get("stream") is True:
        return Stream(_with_usage(_text_chunks(head, echo, indexes), head, echo, received), done=True)
    choices = [
        {"index": index, "text": echo.line, "logprobs": None, "finish_reason": finish(echo)} for index in indexes
    ]
    return Plain({**head, "choices": choices, "usage": _usage(echo, len(indexes))})


def _text_chunks(head: Document, echo: Echo, indexes: range) -> Iterator[Document]:
    for index in indexes:
        for word in echo.words[:-1]:
            yield _chunk(head, index, {"text": word}, None)
        yield _chunk(head, index, {"text": echo.words[-1]}, finish(echo))


def _chunk(head: Document, index: int, said: Document, reason: str | None) -> Document:
    return {**head, "choices": [{"index": index, **said, "logprobs": None, "finish_reason": reason}]}


def _with_usage(
    chunks: Iterator[Document], head: Document, echo: Echo, received: Received
) -> Iterator[tuple[str, Document]]:
    """With `include_usage` every chunk has the key, and one more chunk without choices has the counts."""
    options = received.document.get("stream_options")
    wanted = isinstance(options, dict) and options.get("include_usage") is True
    choices = 0
    last: Document = head
    for chunk in chunks:
        last = chunk
        choices = max(choices, chunk["choices"][0]["index"] + 1)
        yield "", chunk | {"usage": None} if wanted else chunk
    if wanted:
        yield "", last | {"choices": [], "usage": _usage(echo, choices)}


def embeddings(received: Received) -> Reply:
    """POST /v1/embeddings: vectors made of the body's hash, equal for equal bodies."""
    document = received.document
    size = _positive(document.get("dimensions"), DIMENSIONS, MAX_DIMENSIONS)
    as_base64 = document.get("encoding_format") == "base64"
    seed = bytes.fromhex(received.sha256)
    data = [
        {"object": "embedding", "index": index, "embedding": _vector(seed, index, size, as_base64)}
        for index in range(_prompts(document.get("input")))
    ]
    tokens = compose(received).prompt_tokens
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return Plain({"object": "list", "data": data, "model": model_of(received), "usage": usage})


def _vector(seed: bytes, index: int, size: int, as_base64: bool) -> list[float] | str:
    values = [(seed[(index + place) % len(seed)] - 128) / 128 for place in range(size)]
    return base64.b64encode(struct.pack(f"<{size}f", *values)).decode() if as_base64 else values


def models(received: Received) -> Reply:
    """GET /v1/models."""
    return Plain({"object": "list", "data": [_model(MODEL)]})


def model(received: Received) -> Reply:
    """GET /v1/models/{id}: every model is served."""
    return Plain(_model(received.path.removeprefix("/v1/models/")))


def upload(received: Received) -> Reply:
    """POST /v1/audio/* and /v1/images/*: size and hash of what was uploaded."""
    size = len(received.body)
    return Plain({"text": compose(received).line, "bytes": size, "sha256": received.sha256})


def model_of(received: Received) -> str:
    """The model asked for, else the stand-in's own name."""
    name = received.document.get("model")
    return name if isinstance(name, str) and name else MODEL


def finish(echo: Echo) -> str:
    """OpenAI's word for why an answer ended."""
    return "length" if echo.cut else "stop"


def _head(received: Received, prefix: str, kind: str) -> Document:
    return {
        "id": f"{prefix}-{received.sha256[:24]}",
        "object": kind,
        "created": CREATED,
        "model": model_of(received),
    }


def _usage(echo: Echo, choices: int) -> Document:
    said = echo.completion_tokens * choices
    return {
        "prompt_tokens": echo.prompt_tokens,
        "completion_tokens": said,
        "total_tokens": echo.prompt_tokens + said,
    }


def _model(name: str) -> Document:
    return {"id": name, "object": "model", "created": CREATED, "owned_by": MODEL}


def _prompts(value: Any) -> int:
    """How many prompts a text, a list of texts, token ids or a list of those holds."""
    if isinstance(value, list) and value and not isinstance(value[0], int):
        return len(value)
    return 1


def _positive(value: Any, default: int, most: int) -> int:
    return min(value, most) if type(value) is int and value > 0 else default

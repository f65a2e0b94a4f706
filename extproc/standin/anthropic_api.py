"""Anthropic's messages API."""

from __future__ import annotations

from collections.abc import Iterator

from extproc.standin.echo import Echo, compose, prompt_tokens
from extproc.standin.openai_api import model_of
from extproc.standin.receipt import Received
from extproc.standin.replies import Document, Plain, Reply, Stream


def messages(received: Received) -> Reply:
    """POST /v1/messages."""
    echo = compose(received)
    if received.document.get("stream") is True:
        return Stream((event["type"], event) for event in _events(received, echo))
    content = [{"type": "text", "text": echo.line}]
    return Plain(_message(received, echo, content, _stop_reason(echo), echo.completion_tokens))


def count_tokens(received: Received) -> Reply:
    """POST /v1/messages/count_tokens."""
    return Plain({"input_tokens": prompt_tokens(received.document)})


def _events(received: Received, echo: Echo) -> Iterator[Document]:
    yield {"type": "message_start", "message": _message(received, echo, [], None, 0)}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    yield {"type": "ping"}
    for word in echo.words:
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}}
    yield {"type": "content_block_stop", "index": 0}
    delta = {"stop_reason": _stop_reason(echo), "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": echo.completion_tokens}}
    yield {"type": "message_stop"}


def _message(
    received: Received, echo: Echo, content: list[Document], stop_reason: str | None, said: int
) -> Document:
    return {
        "id": f"msg_{received.sha256[:24]}",
        "type": "message",
        "role": "assistant",
        "model": model_of(received),
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": {"input_tokens": echo.prompt_tokens, "output_tokens": said},
    }


def _stop_reason(echo: Echo) -> str:
    return "max_tokens" if echo.cut else "end_turn"

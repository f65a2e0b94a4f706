"""OpenAI's responses API: a typed object, streamed as typed and numbered events."""

from __future__ import annotations

from collections.abc import Iterator

from extproc.standin.echo import Echo, compose
from extproc.standin.openai_api import CREATED, model_of
from extproc.standin.receipt import Received
from extproc.standin.replies import Document, Plain, Reply, Stream


def responses(received: Received) -> Reply:
    """POST /v1/responses."""
    echo = compose(received)
    if received.document.get("stream") is True:
        return Stream(_numbered(_events(received, echo)))
    return Plain(_finished(received, echo))


def _numbered(events: Iterator[Document]) -> Iterator[tuple[str, Document]]:
    for number, event in enumerate(events):
        yield event["type"], event | {"sequence_number": number}


def _events(received: Received, echo: Echo) -> Iterator[Document]:
    started = _response(received, "in_progress", [], None)
    item = _item(received, "in_progress", [])
    place: Document = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    yield {"type": "response.created", "response": started}
    yield {"type": "response.in_progress", "response": started}
    yield {"type": "response.output_item.added", "output_index": 0, "item": item}
    yield {"type": "response.content_part.added", **place, "part": _part("")}
    for word in echo.words:
        yield {"type": "response.output_text.delta", **place, "delta": word, "logprobs": []}
    finished = _finished(received, echo)
    yield {"type": "response.output_text.done", **place, "text": echo.line, "logprobs": []}
    yield {"type": "response.content_part.done", **place, "part": _part(echo.line)}
    yield {"type": "response.output_item.done", "output_index": 0, "item": finished["output"][0]}
    yield {"type": f"response.{finished['status']}", "response": finished}


def _finished(received: Received, echo: Echo) -> Document:
    status = "incomplete" if echo.cut else "completed"
    response = _response(received, status, [_item(received, status, [_part(echo.line)])], _usage(echo))
    return response | {"incomplete_details": {"reason": "max_output_tokens"} if echo.cut else None}


def _response(received: Received, status: str, output: list[Document], usage: Document | None) -> Document:
    return {
        "id": f"resp_{received.sha256[:24]}",
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": model_of(received),
        "output": output,
        "parallel_tool_calls": True,
        "temperature": received.params.get("temperature"),
        "top_p": received.params.get("top_p"),
        "max_output_tokens": received.params.get("max_output_tokens"),
        "tool_choice": "auto",
        "tools": [],
        "usage": usage,
    }


def _item(received: Received, status: str, content: list[Document]) -> Document:
    return {
        "id": f"msg_{received.sha256[:24]}",
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": content,
    }


def _part(text: str) -> Document:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(echo: Echo) -> Document:
    return {
        "input_tokens": echo.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": echo.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": echo.prompt_tokens + echo.completion_tokens,
    }

"""llama.cpp's own endpoints, beside the OpenAI ones its server has too."""

from __future__ import annotations

from collections.abc import Iterator

from extproc.standin.echo import Echo, compose
from extproc.standin.openai_api import model_of
from extproc.standin.receipt import Received
from extproc.standin.replies import Document, Plain, Reply, Stream


def completion(received: Received) -> Reply:
    """POST /completion and /completions."""
    echo = compose(received)
    if received.document.get("stream") is True:
        return Stream(_chunks(received, echo))
    return Plain(_final(received, echo, echo.line))


def _chunks(received: Received, echo: Echo) -> Iterator[tuple[str, Document]]:
    """A word each; the last chunk has no content, says why it ended, and nothing follows it."""
    for count, word in enumerate(echo.words, 1):
        yield "", {"index": 0, "content": word, "tokens": [], "stop": False, "tokens_predicted": count}
    yield "", _final(received, echo, "")


def _final(received: Received, echo: Echo, content: str) -> Document:
    return {
        "index": 0,
        "content": content,
        "tokens": [],
        "id_slot": 0,
        "stop": True,
        "model": model_of(received),
        "tokens_predicted": echo.completion_tokens,
        "tokens_evaluated": echo.prompt_tokens,
        "generation_settings": received.params,
        "has_new_line": False,
        "truncated": False,
        "stop_type": "limit" if echo.cut else "eos",
        "stopping_word": "",
        "tokens_cached": echo.prompt_tokens + echo.completion_tokens,
        "usage": {"prompt_tokens": echo.prompt_tokens, "completion_tokens": echo.completion_tokens},
    }


def tokenize(received: Received) -> Reply:
    """POST /tokenize: a token per byte, so that /detokenize loses nothing."""
    content = received.document.get("content")
    return Plain({"tokens": list(content.encode()) if isinstance(content, str) else []})


def detokenize(received: Received) -> Reply:
    """POST /detokenize."""
    tokens = received.document.get("tokens")
    given = tokens if isinstance(tokens, list) else []
    data = bytes(token for token in given if type(token) is int and 0 <= token < 256)
    return Plain({"content": data.decode("utf-8", "replace")})


def health(received: Received) -> Reply:
    """GET /health, which vLLM has too."""
    return Plain({"status": "ok"})

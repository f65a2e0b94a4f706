"""What one document or event tells of an answer, and how the tellings of a stream come together."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

MAX_TOKENS = 1 << 53
MAX_REASON = 32
"""Characters of a finish reason: it becomes a label."""

FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "eos": "stop",
    "word": "stop",
    "completed": "stop",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "limit": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "incomplete": "length",
    "failed": "error",
}
"""Anthropic's, llama.cpp's and the Responses API's reasons in the words of OpenAI's chat completions."""

NO_VALUE = Raw()
_EMPTY = frozenset({b"", b"null", b'""', b"[]", b"{}"})
_LONGEST_EMPTY = 4


class Facts(Struct, frozen=True, kw_only=True):
    """Tokens are None where nothing was said of them.

    `pieces` counts pieces of output: about one token each. `adds`: these tokens come on top of earlier ones;
    else they replace them. `failed`: the engine reported an error.
    """

    model: str = ""
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    finish_reason: str = ""
    pieces: int = 0
    adds: bool = False
    failed: bool = False


NOTHING = Facts()


def joined(told: Facts, more: Facts) -> Facts:
    """Both: the first model, the last tokens and reason, the sum of the pieces."""
    if more is NOTHING:
        return told
    earlier = told if more.adds else NOTHING
    return Facts(
        model=told.model or more.model,
        prompt_tokens=_later(told.prompt_tokens, more.prompt_tokens, earlier.prompt_tokens),
        output_tokens=_later(told.output_tokens, more.output_tokens, earlier.output_tokens),
        finish_reason=more.finish_reason or told.finish_reason,
        pieces=told.pieces + more.pieces,
        failed=told.failed or more.failed,
    )


def _later(told: int | None, more: int | None, base: int | None) -> int | None:
    return told if more is None else (base or 0) + more


def tokens(value: Any) -> int | None:
    """A count of tokens; None for anything that is none."""
    return value if type(value) is int and 0 <= value < MAX_TOKENS else None


def total(*values: Any) -> int | None:
    """The sum of the known ones; None where none is known."""
    known = [count for count in map(tokens, values) if count is not None]
    return sum(known) if known else None


def output(told: Any, prompt: Any, whole: Any) -> int | None:
    """Tokens of output. Embeddings name none: what the whole has beyond the prompt."""
    count, before, both = map(tokens, (told, prompt, whole))
    if count is not None or before is None or both is None:
        return count
    return max(0, both - before)


def reason(value: Any) -> str:
    """A finish reason in OpenAI's words; unknown ones stay as they are. "" where there is none."""
    return FINISH.get(value, value[:MAX_REASON]) if isinstance(value, str) else ""


def name(value: Any) -> str:
    return value if isinstance(value, str) else ""


def filled(value: Raw) -> bool:
    """Whether a JSON value holds anything: not absent, null or empty."""
    seen = memoryview(value)
    return len(seen) > _LONGEST_EMPTY or bytes(seen) not in _EMPTY


def decoded(decoder: msgspec.json.Decoder[Any], document: bytes) -> Any:
    """The document in the decoder's type; None where it does not fit: an answer is never an error of ours."""
    try:
        return decoder.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None

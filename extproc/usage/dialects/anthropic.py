"""Anthropic's Messages API: the message, or the events that build it.

`message_start` knows the prompt, and an output count that is a placeholder; `message_delta` tells the output
so far, the last one all of it.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from extproc.usage.facts import NOTHING, Facts, decoded, name, reason, tokens, total


class Usage(Struct):
    """Cached parts of the prompt are not in `input_tokens`."""

    input_tokens: Any = None
    cache_creation_input_tokens: Any = None
    cache_read_input_tokens: Any = None
    output_tokens: Any = None


class Message(Struct):
    model: Any = None
    usage: Usage | None = None
    stop_reason: Any = None


class Delta(Struct):
    stop_reason: Any = None


class Answer(Message):
    type: Any = None
    message: Message | None = None
    delta: Delta | None = None


_DECODER = msgspec.json.Decoder(Answer)


def read(document: bytes) -> Facts:
    answer: Answer | None = decoded(_DECODER, document)
    if answer is None:
        return NOTHING
    match answer.type:
        case "content_block_delta":
            return Facts(pieces=1)
        case "message_start" if answer.message is not None:
            return Facts(model=name(answer.message.model), prompt_tokens=_prompt(answer.message.usage))
        case "message_delta":
            return _message(answer, answer.delta.stop_reason if answer.delta else None)
        case "message":
            return _message(answer, answer.stop_reason)
        case "error":
            return Facts(failed=True)
    return NOTHING


def _message(answer: Answer, stop_reason: Any) -> Facts:
    usage = answer.usage or Usage()
    return Facts(
        model=name(answer.model),
        prompt_tokens=_prompt(usage) or None,  # some servers repeat it as 0 in `message_delta`
        output_tokens=tokens(usage.output_tokens),
        finish_reason=reason(stop_reason),
    )


def _prompt(usage: Usage | None) -> int | None:
    if usage is None:
        return None
    return total(usage.input_tokens, usage.cache_creation_input_tokens, usage.cache_read_input_tokens)

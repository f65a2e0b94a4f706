"""llama.cpp's own completion: counts come with the last event, `stop: true`, of each prompt."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from extproc.usage.facts import NO_VALUE, NOTHING, Facts, decoded, filled, joined, name, reason, tokens


class Answer(Struct):
    content: Raw = NO_VALUE
    model: Any = None
    stop: Any = None
    stop_type: Any = None
    stopped_limit: Any = None
    tokens_predicted: Any = None
    tokens_evaluated: Any = None
    error: Raw = NO_VALUE


_DECODER: msgspec.json.Decoder[Answer | list[Answer]] = msgspec.json.Decoder(Answer | list[Answer])


def read(document: bytes) -> Facts:
    """Several prompts in one request are answered by a list, or by events that each end one of them."""
    answers: Answer | list[Answer] | None = decoded(_DECODER, document)
    if answers is None:
        return NOTHING
    facts = NOTHING
    for answer in answers if isinstance(answers, list) else [answers]:
        facts = joined(facts, _one(answer))
    return msgspec.structs.replace(facts, adds=True)


def _one(answer: Answer) -> Facts:
    if answer.stop is not True:
        return Facts(pieces=filled(answer.content), failed=filled(answer.error))
    return Facts(
        model=name(answer.model),
        prompt_tokens=tokens(answer.tokens_evaluated),
        output_tokens=tokens(answer.tokens_predicted),
        finish_reason=_finish(answer),
        pieces=filled(answer.content),
        adds=True,
    )


def _finish(answer: Answer) -> str:
    """Servers before `stop_type` had a flag for each kind."""
    return reason(answer.stop_type) or ("length" if answer.stopped_limit is True else "stop")

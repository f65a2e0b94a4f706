"""OpenAI's Responses API: the response object, alone or inside the events that tell its state."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from extproc.usage.facts import NO_VALUE, NOTHING, Facts, decoded, filled, name, reason, tokens

_ENDED = frozenset({"completed", "incomplete", "failed", "cancelled"})


class Usage(Struct):
    input_tokens: Any = None
    output_tokens: Any = None


class Incomplete(Struct):
    reason: Any = None


class Response(Struct):
    model: Any = None
    status: Any = None
    usage: Usage | None = None
    incomplete_details: Incomplete | None = None
    error: Raw = NO_VALUE


class Answer(Response):
    """An event, or a response of its own: that has an `object` and no `type`."""

    type: Any = None
    response: Response | None = None


_DECODER = msgspec.json.Decoder(Answer)


def read(document: bytes) -> Facts:
    answer: Answer | None = decoded(_DECODER, document)
    if answer is None:
        return NOTHING
    if answer.type is None:
        return _response(answer)
    if answer.response is not None:
        return _response(answer.response)
    if answer.type == "error":
        return Facts(failed=True)
    return Facts(pieces=1) if name(answer.type).endswith(".delta") else NOTHING


def _response(response: Response) -> Facts:
    usage = response.usage or Usage()
    return Facts(
        model=name(response.model),
        prompt_tokens=tokens(usage.input_tokens),
        output_tokens=tokens(usage.output_tokens),
        finish_reason=_finish(response),
        failed=filled(response.error),
    )


def _finish(response: Response) -> str:
    """What ended it, while it is over: an unfinished one has a status as well."""
    if response.status not in _ENDED:
        return ""
    details = response.incomplete_details
    return (reason(details.reason) if details else "") or reason(response.status)

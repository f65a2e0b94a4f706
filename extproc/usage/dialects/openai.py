"""Chat completions, completions and embeddings, as OpenAI, vLLM and llama.cpp answer them."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from extproc.usage.facts import NO_VALUE, NOTHING, Facts, decoded, filled, name, output, reason, tokens


class Delta(Struct):
    """What a chunk may bring; vLLM has spelled its reasoning both ways."""

    content: Raw = NO_VALUE
    reasoning_content: Raw = NO_VALUE
    reasoning: Raw = NO_VALUE
    refusal: Raw = NO_VALUE
    tool_calls: Raw = NO_VALUE
    function_call: Raw = NO_VALUE


class Choice(Struct):
    delta: Delta | None = None
    text: Raw = NO_VALUE
    finish_reason: Any = None


class Usage(Struct):
    prompt_tokens: Any = None
    completion_tokens: Any = None
    total_tokens: Any = None


class Answer(Struct):
    """`object` "error" at the top level is vLLM's older form of a failure in mid-stream."""

    object: Any = None
    model: Any = None
    choices: list[Choice] = []
    usage: Usage | None = None
    error: Raw = NO_VALUE


_DECODER = msgspec.json.Decoder(Answer)


def read(document: bytes) -> Facts:
    answer: Answer | None = decoded(_DECODER, document)
    if answer is None:
        return NOTHING
    reasons = [found for choice in answer.choices if (found := reason(choice.finish_reason))]
    return Facts(
        model=name(answer.model),
        prompt_tokens=tokens(answer.usage.prompt_tokens) if answer.usage else None,
        output_tokens=output(*_counts(answer.usage)) if answer.usage else None,
        finish_reason=reasons[-1] if reasons else "",
        pieces=sum(map(_speaks, answer.choices)),
        failed=answer.object == "error" or filled(answer.error),
    )


def _counts(usage: Usage) -> tuple[Any, Any, Any]:
    return usage.completion_tokens, usage.prompt_tokens, usage.total_tokens


def _speaks(choice: Choice) -> bool:
    delta = choice.delta
    if delta is None:
        return filled(choice.text)
    return (
        filled(delta.content)
        or filled(delta.reasoning_content)
        or filled(delta.reasoning)
        or filled(delta.refusal)
        or filled(delta.tool_calls)
        or filled(delta.function_call)
    )

"""What the two ends of a document too long to hold still tell.

The real `usage` follows everything a model wrote, and a name in quotes with a colon behind it is a key: inside
of a string both quotes would be escaped. So the last `usage` that holds tokens is the answer's own.
"""

from __future__ import annotations

import json
import re
from typing import Any

from extproc.usage.facts import Facts, output, reason, tokens, total

_MODEL = re.compile(rb'"model(?:_name)?"\s*:\s*"([^"\\]{1,256})"')
_USAGE = re.compile(r'"usage"\s*:\s*(?=\{)')
_REASONS = tuple(
    re.compile(rf'{key}"\s*:\s*"([a-z_]{{1,32}})"')
    for key in (
        '"finish_reason',
        '"stop_reason',
        '"stop_type',
        r'"incomplete_details"\s*:\s*\{\s*"reason',
        '"status',
    )
)
"""The most telling first: vLLM has a `stop_reason` of its own beside `finish_reason`."""

_PREDICTED = re.compile(r'"tokens_predicted"\s*:\s*(\d{1,15})(?!\d)')
_EVALUATED = re.compile(r'"tokens_evaluated"\s*:\s*(\d{1,15})(?!\d)')
_INPUTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_PARSER = json.JSONDecoder()


def read(head: bytes, tail: bytes) -> Facts:
    """One piece of output where no tokens are told, so that a huge event counts."""
    text = tail.decode("utf-8", "replace")
    prompt, told = _usage(text) or (_last(_EVALUATED, text), _last(_PREDICTED, text))
    model = _MODEL.search(head)
    return Facts(
        model=model[1].decode("utf-8", "replace") if model else "",
        prompt_tokens=prompt,
        output_tokens=told,
        finish_reason=_finish(text) or _finish(head.decode("utf-8", "replace")),
        pieces=told is None,
    )


def _usage(text: str) -> tuple[int | None, int] | None:
    for match in reversed(list(_USAGE.finditer(text))):
        try:
            usage = _PARSER.raw_decode(text, match.end())[0]
        except (ValueError, RecursionError):
            continue
        if (found := _counts(usage)) is not None:
            return found
    return None


def _counts(usage: dict[str, Any]) -> tuple[int | None, int] | None:
    """Prompt and output under OpenAI's names, or Anthropic's and the Responses API's."""
    prompt = usage.get("prompt_tokens")
    told = output(usage.get("completion_tokens"), prompt, usage.get("total_tokens"))
    if told is not None:
        return tokens(prompt), told
    told = tokens(usage.get("output_tokens"))
    return None if told is None else (total(*map(usage.get, _INPUTS)), told)


def _finish(text: str) -> str:
    """The last one of the most telling kind."""
    for pattern in _REASONS:
        found = pattern.findall(text)
        if found:
            return reason(found[-1])
    return ""


def _last(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.findall(text)
    return int(found[-1]) if found else None

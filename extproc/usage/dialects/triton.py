"""Triton's generate and generate_stream: output, and nothing about tokens."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from extproc.usage.facts import NO_VALUE, NOTHING, Facts, decoded, filled, name


class Answer(Struct):
    model_name: Any = None
    text_output: Raw = NO_VALUE
    error: Raw = NO_VALUE


_DECODER = msgspec.json.Decoder(Answer)


def read(document: bytes) -> Facts:
    answer: Answer | None = decoded(_DECODER, document)
    if answer is None:
        return NOTHING
    return Facts(model=name(answer.model_name), pieces=filled(answer.text_output), failed=filled(answer.error))

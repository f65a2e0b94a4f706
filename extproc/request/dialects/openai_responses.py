"""OpenAI responses: `input` is a string or a list of items, the length is `max_output_tokens`."""

from __future__ import annotations

from extproc.model.names import Dialect, Field
from extproc.request import text
from extproc.request.dialects.flat import flat
from extproc.request.dialects.spellings import FAN_OUT, INSERT, LENGTH, SAMPLING, everywhere
from extproc.request.document import Spelling
from extproc.request.json_object import JsonObject


def _text(root: JsonObject, max_chars: int) -> str:
    raw = root.raw("input")
    if raw is not None and raw[:1] == b"[":
        return text.of_messages(raw, max_chars)
    return text.of_prompt(raw, max_chars)


FORMAT = flat(
    Dialect.OPENAI_RESPONSES,
    Spelling(
        keys=SAMPLING | LENGTH | FAN_OUT | {"stream": Field.STREAM, "priority": Field.PRIORITY},
        insert=INSERT,
        length=everywhere("max_output_tokens"),
    ),
    _text,
)

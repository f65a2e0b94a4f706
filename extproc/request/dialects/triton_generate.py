"""Triton generate and generate_stream: fields stand at the top level or in `parameters`, by model.

Both places are read, since a model may read either; what has to be added goes where the model's profile
says. Only scalars are ever written into `parameters`: Triton refuses arrays and null there.
"""

from __future__ import annotations

from extproc.model.names import Dialect, Field
from extproc.request import text
from extproc.request.dialects.spellings import FAN_OUT, INSERT, LENGTH, SAMPLING, everywhere
from extproc.request.document import ROOT, JsonDocument, Reading, Shape, Spelling, Writing, invalid
from extproc.request.json_object import JsonObject, parse

PARAMETERS = "parameters"

SPELLING = Spelling(
    keys=SAMPLING | LENGTH | FAN_OUT | {"priority": Field.PRIORITY, "stream": Field.STREAM},
    insert={field: key for field, key in INSERT.items() if field is not Field.STREAM},
    length=everywhere("max_tokens"),
)


def read(body: bytes, reading: Reading) -> JsonDocument:
    root = parse(body, max_keys=reading.max_keys)
    nested = _nested(root, reading.max_keys)
    prompt = text.of_prompt(root.raw("text_input"), reading.max_chars)
    return JsonDocument(SHAPE, root, nested, prompt, reading.target.model or "")


def _nested(root: JsonObject, max_keys: int) -> dict[str, JsonObject]:
    raw = root.raw(PARAMETERS)
    if raw is None:
        return {}
    if raw[:1] != b"{":
        raise invalid(PARAMETERS, "an object")
    return {PARAMETERS: parse(raw, max_keys=max_keys, what=f"'{PARAMETERS}' object")}


def _place(writing: Writing) -> str:
    return PARAMETERS if writing.triton.generate_place == PARAMETERS else ROOT


SHAPE = Shape(Dialect.TRITON_GENERATE, SPELLING, SPELLING.insertable(), _place)

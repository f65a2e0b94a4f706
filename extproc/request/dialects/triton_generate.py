"""Triton generate and generate_stream: fields stand at the top level or in `parameters`, by model.

Every place is read, since a model may read any; what has to be added goes where the model's profile says.
Keys name input tensors, so the profile's tensor names are keys too. vLLM's backend reads the JSON in the
string `sampling_parameters` in place of all else: where it stands, what leaves must hold in it.
Only scalars are ever written into `parameters`: Triton refuses arrays and null there.
"""

from __future__ import annotations

from functools import lru_cache

from extproc.errors import ClientFault
from extproc.model.names import Dialect, Field
from extproc.registry import TensorNames
from extproc.request import tensor_fields, text
from extproc.request.dialects.spellings import FAN_OUT, INSERT, LENGTH, SAMPLING, everywhere
from extproc.request.document import ROOT, JsonDocument, Reading, Shape, Spelling, Writing, invalid
from extproc.request.json_object import JsonObject, parse, scalar

PARAMETERS = "parameters"
SAMPLING_PARAMETERS = "sampling_parameters"
TEXT = "text_input"

_KEYS = SAMPLING | LENGTH | FAN_OUT | {"priority": Field.PRIORITY, "stream": Field.STREAM}
_INSERT: dict[Field, str] = {field: key for field, key in INSERT.items() if field is not Field.STREAM}


def read(body: bytes, reading: Reading) -> JsonDocument:
    model = reading.target.model or ""
    names = reading.triton(model).tensors
    root = parse(body, max_keys=reading.max_keys)
    nested = _nested(root, reading.max_keys)
    at = names.text if names.text is not None and names.text in root else TEXT
    prompt = text.of_prompt(root.raw(at), reading.max_chars)
    quoted = SAMPLING_PARAMETERS if SAMPLING_PARAMETERS in nested else None
    return JsonDocument(_shape(names), root, nested, prompt, model, quoted=quoted)


def _nested(root: JsonObject, max_keys: int) -> dict[str, JsonObject]:
    nested: dict[str, JsonObject] = {}
    raw = root.raw(PARAMETERS)
    if raw is not None:
        if raw[:1] != b"{":
            raise invalid(PARAMETERS, "an object")
        nested[PARAMETERS] = parse(raw, max_keys=max_keys, what=f"'{PARAMETERS}' object")
        # Triton maps its members to input tensors as it does those of the top level.
        if nested[PARAMETERS].raw(SAMPLING_PARAMETERS) not in (None, b"null"):
            raise invalid(SAMPLING_PARAMETERS, f"none in '{PARAMETERS}'")
    raw = root.raw(SAMPLING_PARAMETERS)
    if raw not in (None, b"null"):
        nested[SAMPLING_PARAMETERS] = _unquoted(raw, max_keys)
    return nested


def _unquoted(raw: bytes, max_keys: int) -> JsonObject:
    try:
        inner = scalar(raw) if raw[:1] == b'"' else None
        if isinstance(inner, str):
            return parse(inner.encode(), max_keys=max_keys, what=f"'{SAMPLING_PARAMETERS}' object")
    except ValueError:
        pass
    except ClientFault as fault:
        if fault.reason != "invalid_json":
            raise
    raise invalid(SAMPLING_PARAMETERS, "a string that holds a JSON object")


@lru_cache(maxsize=256)
def _shape(names: TensorNames) -> Shape:
    own = tensor_fields.keys(names)
    spelling = Spelling(
        keys=_KEYS | own,
        insert=_INSERT | {field: key for key, field in own.items() if field in _INSERT},
        length=everywhere(names.max_tokens or "max_tokens"),
    )
    return Shape(Dialect.TRITON_GENERATE, spelling, spelling.insertable(), _place)


def _place(writing: Writing) -> str:
    return PARAMETERS if writing.triton.generate_place == PARAMETERS else ROOT

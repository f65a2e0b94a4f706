"""Triton infer: fields stand in input tensors that the model's profile names, or in the request `parameters`.

A tensor's elements stand in the JSON or, with `inference-header-content-length`, packed behind it. A tensor
is changed element by element in place: its datatype and shape are the model's contract, so none is added
or removed. What no rule names keeps its bytes, the tail's too: one join copies it, no tensor is copied alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from extproc.errors import ClientFault
from extproc.model.names import Dialect, Engine, Field
from extproc.model.values import ABSENT, Change, InferenceRequest
from extproc.request import document, tensor_fields, tensor_inputs, tensors
from extproc.request.dialects.spellings import FAN_OUT, LENGTH, SAMPLING, everywhere
from extproc.request.dialects.triton_generate import SAMPLING_PARAMETERS
from extproc.request.document import NO_MORE, Occurrence, Reading, Spelling, Writing, Written, invalid
from extproc.request.headers import Headers
from extproc.request.json_object import Edit, JsonObject, encode, parse
from extproc.request.shorten import NOTHING, Cut
from extproc.request.tensor_fields import ParameterTensor
from extproc.request.tensor_inputs import INPUTS, PARAMETERS, Input, Inputs, Span, malformed
from extproc.request.tensors import Clip

HEADER_LENGTH = "inference-header-content-length"

SPELLING = Spelling(
    keys=SAMPLING | LENGTH | FAN_OUT | {"priority": Field.PRIORITY},
    insert={Field.PRIORITY: "priority"},
    length=everywhere("max_tokens"),
)
INSERTABLE = frozenset({Field.PRIORITY})

_LENGTH_KEY = "max_tokens"
_GREEDY_TOP_K = 1


class TritonInferDocument(Struct, frozen=True):
    """`head` is the JSON part's length in the body; `framed` tells whether the request's header gave it."""

    request: InferenceRequest
    body: bytes
    head: int
    framed: bool
    root: JsonObject
    parameters: JsonObject | None
    inputs: Inputs
    found: tuple[Occurrence, ...]
    tensors: tuple[ParameterTensor, ...]

    def respells(self, _: Engine) -> bool:
        """Several places for the length, or a key the model does not read."""
        keys = [occurrence.key for occurrence in self.found if occurrence.field is Field.MAX_TOKENS]
        return len(self.request.length_keys) > 1 or any(key != _LENGTH_KEY for key in keys)

    @property
    def text(self) -> str:
        return self.request.text

    @property
    def signature(self) -> None:
        """Tensors are changed element by element: nothing to remember."""

    def edits(self, changes: Iterable[Change], _: Writing) -> tuple[Change, ...]:
        return tuple(changes)

    def write(self, changes: Iterable[Change], writing: Writing) -> Written:
        return self.written(self.edits(changes, writing))

    def written(self, edits: Iterable[Change], more: Mapping[str, bytes] = NO_MORE) -> Written:
        """The body with these changes. A change of a field that is neither found nor insertable is none.

        `more` is for formats whose text stands in a member.
        """
        by_field = {change.field: change for change in edits}
        data, tail = self._tensor_edits(by_field)
        head = self._edited_head(by_field, data)
        headers: tuple[tuple[str, bytes], ...] = ()
        if self.framed and len(head) != self.head:
            headers = ((HEADER_LENGTH, b"%d" % len(head)),)
        return Written(self._joined(head, tail), headers)

    def shortened(self, **_: float) -> Cut:
        """Text in tensors is bytes among bytes: it is left alone."""
        return NOTHING

    def _tensor_edits(self, by_field: Mapping[Field, Change]) -> tuple[dict[str, bytes], dict[Span, bytes]]:
        """New JSON `data` by tensor name, and new bytes in the tail."""
        data: dict[str, bytes] = {}
        tail: dict[Span, bytes] = {}
        for tensor in self.tensors:
            clip = _clip(by_field.get(tensor.field))
            old, span = tensor.input.data, tensor.input.tail
            if clip is None:
                continue
            if old is not None:
                new = tensors.json_clipped(old, clip, whole=tensor.kind.whole)
                if new != old:
                    data[tensor.input.name] = new
            elif span is not None:
                view = memoryview(self.body)[span.start : span.end]
                tail[span] = tensors.clipped(tensor.kind, view, clip)
        return data, tail

    def _edited_head(self, by_field: Mapping[Field, Change], data: Mapping[str, bytes]) -> bytes:
        edits: dict[str, Edit] = {}
        array = self.inputs.edited(data)
        if array is not None:
            edits[INPUTS] = array
        keys: dict[str, Edit] = {}
        for change in by_field.values():
            keys |= self._parameter_edits(change)
        object_ = self.parameters
        if keys or (object_ is not None and object_.rewritten):
            edits[PARAMETERS] = (object_ or parse(b"{}", max_keys=0)).edited(keys)
        return self.root.edited(edits)

    def _parameter_edits(self, change: Change) -> dict[str, Edit]:
        """New values of keys in `parameters`. Of the length one place leaves, a tensor before a key."""
        value: Edit = ABSENT if change.after is ABSENT else encode(change.after)
        keys = [occurrence.key for occurrence in self.found if occurrence.field is change.field]
        if change.field is Field.MAX_TOKENS and keys:
            edits: dict[str, Edit] = dict.fromkeys(keys, ABSENT)
            if value is not ABSENT and not self._length_in_tensor():
                edits[_LENGTH_KEY] = value
            return edits
        if not keys and change.field in INSERTABLE and value is not ABSENT:
            keys = [SPELLING.insert[change.field]]
        return dict.fromkeys(keys, value)

    def _length_in_tensor(self) -> bool:
        return any(t.field is Field.MAX_TOKENS and t.value is not None for t in self.tensors)

    def _joined(self, head: bytes, tail: Mapping[Span, bytes]) -> bytes:
        """The head and the tail with these spans replaced; the very body where neither differs."""
        view = memoryview(self.body)
        edits = [(span, new) for span, new in tail.items() if view[span.start : span.end] != new]
        if not edits and len(head) == self.head and self.body.startswith(head):
            return self.body
        pieces: list[bytes | memoryview] = [head]
        at = self.head
        for span, new in sorted(edits, key=lambda edit: edit[0].start):
            pieces += (view[at : span.start], new)
            at = span.end
        pieces.append(view[at:])
        return b"".join(pieces)


def read(body: bytes, reading: Reading) -> TritonInferDocument:
    framed = HEADER_LENGTH in reading.headers
    head = _head_length(reading.headers, len(body)) if framed else len(body)
    root = parse(body[:head], max_keys=reading.max_keys)
    parameters = _parameters(root, reading.max_keys)
    tail = Span(head, len(body)) if framed else None
    inputs = tensor_inputs.read(root.raw(INPUTS), tail=tail, max_keys=reading.max_keys)
    names = reading.triton(reading.target.model or "").tensors
    by_name = {tensor.name: tensor for tensor in inputs.tensors}
    _check_sampling(by_name.get(SAMPLING_PARAMETERS))
    found = document.occurrences(parameters, SPELLING, PARAMETERS) if parameters is not None else []
    carriers = tensor_fields.find(by_name, names, body)
    spelled = [Occurrence(INPUTS, t.input.name, t.field, t.value) for t in carriers] + found
    text = by_name.get(names.text) if names.text is not None else None
    request = _request(reading, spelled, tensor_fields.prompt(text, body, reading.max_chars))
    return TritonInferDocument(request, body, head, framed, root, parameters, inputs, tuple(found), tuple(carriers))


def _request(reading: Reading, spelled: Sequence[Occurrence], prompt: str) -> InferenceRequest:
    given = document.given(spelled)
    tokens, keys, _ = document.length(spelled, SPELLING)
    if tokens is not None:
        given[Field.MAX_TOKENS] = tokens
    return InferenceRequest(
        dialect=Dialect.TRITON_INFER,
        model=reading.target.model or "",
        text=prompt,
        given=given,
        insertable=INSERTABLE,
        length_keys=keys,
    )


def _head_length(headers: Headers, size: int) -> int:
    value = headers.one(HEADER_LENGTH)
    if value is None:
        raise malformed(f"'{HEADER_LENGTH}' is repeated")
    if not value.isdigit() or len(value) > tensor_inputs.MAX_SIZE_DIGITS:
        raise malformed(f"'{HEADER_LENGTH}' is not a number of bytes")
    if int(value) > size:
        raise malformed(f"'{HEADER_LENGTH}' is larger than the body")
    return int(value)


def _parameters(root: JsonObject, max_keys: int) -> JsonObject | None:
    raw = root.raw(PARAMETERS)
    if raw is None:
        return None
    if raw[:1] != b"{":
        raise invalid(PARAMETERS, "an object")
    return parse(raw, max_keys=max_keys, what=f"'{PARAMETERS}' object")


def _check_sampling(tensor: Input | None) -> None:
    """ClientFault 400 for the tensor that vLLM's backend reads in place of all other fields."""
    if tensor is not None and tensor.datatype == "BYTES":
        why = f"The input '{SAMPLING_PARAMETERS}' cannot be read: send its fields as request parameters or tensors."
        raise ClientFault(400, SAMPLING_PARAMETERS, why, param=SAMPLING_PARAMETERS)


def _clip(change: Change | None) -> Clip | None:
    """What a change means for each element. A tensor cannot go: without sampling its top_k is 1."""
    if change is None:
        return None
    after, before = change.after, change.before
    if after is ABSENT:
        return Clip(_GREEDY_TOP_K, _GREEDY_TOP_K) if change.field is Field.TOP_K else None
    if isinstance(after, bool | str):
        return None
    raised = not isinstance(before, bool | str) and before is not ABSENT and after > before
    return Clip(after if raised else -math.inf, after)

"""Which input tensors carry a field of the model's, what their elements say, and what the text tensor reads.

A length that cannot be judged is refused, since the engine might read it: another datatype, shared memory,
elements that are no counts. A sampling tensor without numbers is left to the engine to refuse.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec import Struct

from extproc.errors import ClientFault
from extproc.model.names import Field
from extproc.registry import TensorNames
from extproc.request import tensors
from extproc.request.document import invalid
from extproc.request.tensor_inputs import Input
from extproc.request.tensors import KINDS, MAX_ELEMENTS, Kind, Number
from extproc.request.text import check_items

_WHOLE = frozenset({Field.MAX_TOKENS, Field.BEAMS})
_MOST_DIGITS = 64
"""Bytes of JSON per element, spacing and brackets too, on average."""
_NAMED = (Field.MAX_TOKENS, Field.TEMPERATURE, Field.TOP_P, Field.TOP_K, Field.BEAMS)


class ParameterTensor(Struct, frozen=True):
    """A tensor that carries a field. `value` is its largest element, None where it has none."""

    field: Field
    kind: Kind
    input: Input
    value: Number | None


def keys(names: TensorNames) -> dict[str, Field]:
    """The field each of the model's tensors carries."""
    return {name: field for field in _NAMED if (name := getattr(names, field.value)) is not None}


def find(by_name: Mapping[str, Input], names: TensorNames, body: bytes) -> list[ParameterTensor]:
    """The tensors that carry a field; ClientFault 400 for elements that cannot be one."""
    found: list[ParameterTensor] = []
    for field in _NAMED:
        name: str | None = getattr(names, field.value)
        tensor = by_name.get(name) if name is not None else None
        if tensor is None:
            continue
        kind = KINDS.get(tensor.datatype)
        if kind is not None:
            value = _largest(field, tensor.name, _elements(tensor, kind, body))
            found.append(ParameterTensor(field, kind, tensor, value))
        elif field is Field.MAX_TOKENS:
            raise invalid(tensor.name, "a tensor of a numeric datatype")
    return found


def _elements(tensor: Input, kind: Kind, body: bytes) -> Sequence[Number]:
    """The elements; ClientFault 400 where they cannot be judged, in shared memory or too many of them."""
    data, span = tensor.data, tensor.tail
    if data is not None:
        if len(data) > MAX_ELEMENTS * _MOST_DIGITS:
            raise ClientFault(400, "too_many_items", f"'{tensor.name}' has too many elements.", param=tensor.name)
        fits = data.count(b",") < MAX_ELEMENTS
        numbers = tensors.json_numbers(data) if fits else None
    elif span is not None:
        fits = (span.end - span.start) % kind.size == 0 and span.end - span.start <= MAX_ELEMENTS * kind.size
        numbers = list(tensors.unpacked(kind, memoryview(body)[span.start : span.end])) if fits else None
    else:
        raise invalid(tensor.name, "a tensor with its elements in the request")
    if numbers is None:
        raise invalid(tensor.name, f"whole elements of its datatype, at most {MAX_ELEMENTS}")
    return numbers


def _largest(field: Field, name: str, elements: Sequence[Number]) -> Number | None:
    """The largest element, so that a cap holds for each. Any top_k passes: some mean "all of them"."""
    if field is Field.TOP_K:
        finite = [value for value in elements if math.isfinite(value)]
        return max(map(_plain, finite), default=None)
    for value in elements:
        if not 0 <= value < math.inf:
            raise invalid(name, "numbers, 0 or more")
        if field in _WHOLE and value != math.floor(value):
            raise invalid(name, "whole numbers, 0 or more")
    return max(map(_plain, elements), default=None)


def _plain(value: Number) -> Number:
    """A whole number as int, as `json_object.number` reads it; beyond 15 digits only limits matter."""
    return int(value) if abs(value) < 1e15 and value == math.floor(value) else value


def prompt(tensor: Input | None, body: bytes, max_chars: int) -> str:
    """The text tensor's text; a datatype other than BYTES, token ids say, has none."""
    if tensor is None or tensor.datatype != "BYTES":
        return ""
    if tensor.data is not None:
        check_items(tensor.data, tensor.name)
        return tensors.json_text(tensor.data, max_chars)
    span = tensor.tail
    if span is None:
        return ""
    elements = tensors.strings(memoryview(body)[span.start : span.end])
    if elements is None:
        raise invalid(tensor.name, f"elements behind their lengths, at most {MAX_ELEMENTS}")
    return tensors.packed_text(elements, max_chars)

"""Tensors of the v2 inference protocol: JSON values and their binary form."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from extproc.errors import ClientFault

_FORMATS = {
    "BOOL": "?",
    "UINT8": "B",
    "UINT16": "H",
    "UINT32": "I",
    "UINT64": "Q",
    "INT8": "b",
    "INT16": "h",
    "INT32": "i",
    "INT64": "q",
    "FP16": "e",
    "FP32": "f",
    "FP64": "d",
}
_SIZES = {name: struct.calcsize(code) for name, code in _FORMATS.items()} | {"BF16": 2}
_DIGITS = {"FP16": 4, "FP32": 7}


class Tensor(Struct, frozen=True):
    """A named tensor with its data in binary form."""

    name: str
    datatype: str
    shape: list[int]
    data: bytes


def read_all(inputs: Any, tail: bytes) -> list[Tensor]:
    """All inputs of a request; what follows its JSON must be their data, to the byte."""
    if not isinstance(inputs, list):
        raise _fault("Unable to parse 'inputs': attempt to access JSON non-array as array")
    tensors = []
    offset = 0
    for described in inputs:
        size = _binary_size(described)
        tensors.append(_read(described, None if size is None else tail[offset : offset + size]))
        offset += size or 0
    if offset != len(tail):
        raise _fault(f"unexpected size of binary input data, {offset} bytes are described, {len(tail)} follow")
    return tensors


def _binary_size(described: Any) -> int | None:
    parameters = described.get("parameters") if isinstance(described, dict) else None
    size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
    if size is not None and (type(size) is not int or size < 0):
        raise _fault("Unable to parse 'binary_data_size': it must be an unsigned integer")
    return size


def _read(described: Any, data: bytes | None) -> Tensor:
    name, datatype, shape = _header(described)
    if data is None:
        data = pack(datatype, flatten(described.get("data")))
    expected = math.prod(shape)
    if datatype == "BYTES":
        count = len(split_strings(data))
        if count != expected:
            raise _fault(f"unexpected number of string elements {count} for '{name}', expecting {expected}")
    elif len(data) != expected * _SIZES[datatype]:
        wanted = expected * _SIZES[datatype]
        raise _fault(f"unexpected total byte size {len(data)} for input '{name}', expecting {wanted}")
    return Tensor(name, datatype, shape, data)


def _header(described: Any) -> tuple[str, str, list[int]]:
    given = described if isinstance(described, dict) else {}
    name, datatype, shape = given.get("name"), given.get("datatype"), given.get("shape")
    if not isinstance(name, str):
        raise _fault("Unable to parse 'inputs': every one must have a 'name'")
    if not isinstance(datatype, str) or (datatype not in _SIZES and datatype != "BYTES"):
        raise _fault(f"invalid datatype for input '{name}'")
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise _fault(f"invalid shape for input '{name}'")
    return name, datatype, shape


def flatten(value: Any) -> list[Any]:
    """Nested rows as one flat list."""
    return list(_leaves(value, 0)) if isinstance(value, list) else []


def _leaves(values: list[Any], depth: int) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list) and depth < 16:
            yield from _leaves(value, depth + 1)
        else:
            yield value


def pack(datatype: str, values: Sequence[Any]) -> bytes:
    """Values in binary form."""
    if datatype == "BYTES":
        return b"".join(_prefixed(value) for value in values)
    if datatype not in _FORMATS:
        raise _fault(f"datatype {datatype} has no JSON form, send it as binary")
    try:
        return struct.pack(f"<{len(values)}{_FORMATS[datatype]}", *values)
    except (struct.error, OverflowError, TypeError) as error:
        raise _fault(f"Unable to parse 'data' as {datatype}: {error}") from error


def _prefixed(value: Any) -> bytes:
    data = value if isinstance(value, bytes) else str(value).encode()
    return struct.pack("<I", len(data)) + data


def unpack(tensor: Tensor) -> list[Any]:
    """A tensor's values as JSON has them; bytes that are no UTF-8 are replaced."""
    if tensor.datatype == "BYTES":
        return [text.decode("utf-8", "replace") for text in split_strings(tensor.data)]
    if tensor.datatype not in _FORMATS:
        raise _fault(f"datatype {tensor.datatype} has no JSON form, ask for it as binary")
    count = len(tensor.data) // _SIZES[tensor.datatype]
    return list(struct.unpack(f"<{count}{_FORMATS[tensor.datatype]}", tensor.data))


def split_strings(data: bytes) -> list[bytes]:
    """The elements of a BYTES tensor, each behind its length."""
    texts = []
    offset = 0
    while offset < len(data):
        end = offset + 4 + int.from_bytes(data[offset : offset + 4], "little")
        if offset + 4 > len(data) or end > len(data):
            raise _fault("incomplete string data in a BYTES tensor")
        texts.append(data[offset + 4 : end])
        offset = end
    return texts


def scalars(tensors: list[Tensor]) -> dict[str, Any]:
    """Every one-element number by name, floats at the precision their type has."""
    single = (t for t in tensors if t.datatype in _FORMATS and len(t.data) == _SIZES[t.datatype])
    return {tensor.name: _rounded(tensor) for tensor in single}


def _rounded(tensor: Tensor) -> Any:
    value = unpack(tensor)[0]
    digits = _DIGITS.get(tensor.datatype)
    return float(f"{value:.{digits}g}") if digits else value


def _fault(message: str) -> ClientFault:
    return ClientFault(400, "bad_tensor", message)

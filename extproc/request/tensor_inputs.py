"""The `inputs` of Triton's infer: a JSON array of objects, and the bytes behind the JSON that belong to them.

Each object keeps its place in the array's bytes, so that one is edited without the others being written
anew. Objects are read as `JsonObject`: Triton takes the first of two members with one name, so a repeated
key (a second `binary_data_size`, a second `data`) leaves settled.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from extproc.errors import ClientFault
from extproc.request.json_object import Edit, parse, scalar

INPUTS = "inputs"
PARAMETERS = "parameters"
DATA = "data"
BINARY_SIZE = "binary_data_size"
SHARED_MEMORY = "shared_memory_region"

MAX_SIZE_DIGITS = 15
MAX_INPUTS = 1024
MAX_INPUT_KEYS = 32
"""Of one tensor and of its parameters: Triton knows a handful of each, and each key costs time."""

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])
_SMALL_ARRAY = 1 << 16
_NONE = msgspec.Raw()
_FIRST_ELEMENTS = msgspec.json.Decoder(
    msgspec.defstruct(
        "_FirstElements", [(f"at{i}", msgspec.Raw, _NONE) for i in range(MAX_INPUTS + 1)], array_like=True
    )
)
"""An array up to one element more than is allowed. The others are skipped: millions would take long to build."""
_SPACE = re.compile(rb"[ \t\n\r]*")


class Span(Struct, frozen=True, gc=False):
    """Bytes [start, end)."""

    start: int
    end: int


class Input(Struct, frozen=True):
    """One input tensor. `place` is its object in the array, `tail` its bytes in the body, if it has any."""

    name: str
    values: Mapping[str, msgspec.Raw]
    parameters: Mapping[str, msgspec.Raw]
    repeated: bool
    place: Span
    tail: Span | None

    @property
    def datatype(self) -> str:
        return _string(self.values.get("datatype")) or ""

    @property
    def data(self) -> bytes | None:
        """The JSON of its elements; None where they stand elsewhere."""
        raw = self.values.get(DATA)
        return None if raw is None else bytes(raw)

    def edited(self, raw: bytes, data: bytes | None) -> bytes:
        """`raw`, this tensor's object, with repeated keys settled and, where given, new `data`."""
        edits: dict[str, Edit] = {} if data is None else {DATA: data}
        if self.repeated and PARAMETERS in self.values:
            nested = bytes(self.values[PARAMETERS])
            edits[PARAMETERS] = parse(nested, max_keys=len(self.parameters)).body
        return parse(raw, max_keys=len(self.values)).edited(edits)


class Inputs(Struct, frozen=True):
    """The array's bytes, and its tensors in their order."""

    array: bytes
    tensors: tuple[Input, ...]

    def edited(self, data: Mapping[str, bytes]) -> bytes | None:
        """The array with new `data` by tensor name and repeated keys settled; None where nothing changes."""
        pieces: list[bytes] = []
        at = 0
        for tensor in self.tensors:
            if tensor.name in data or tensor.repeated:
                start, end = tensor.place.start, tensor.place.end
                pieces += (self.array[at:start], tensor.edited(self.array[start:end], data.get(tensor.name)))
                at = end
        return b"".join((*pieces, self.array[at:])) if pieces else None


def read(array: bytes | None, *, tail: Span | None, max_keys: int) -> Inputs:
    """The tensors of `array`, with `tail` dealt out to them; ClientFault 400 where the two do not agree.

    `tail` is None where the request does not say that it has one.
    """
    tensors: dict[str, Input] = {}
    at = tail.start if tail else 0
    max_keys = min(max_keys, MAX_INPUT_KEYS)
    for index, place in enumerate(_places(array)):
        tensor, size = _tensor(array[place.start : place.end], place, index, max_keys)  # type: ignore[index]
        if tensor.name in tensors:
            raise malformed(f"{INPUTS}[{index}] has the name of an earlier input")
        if size is not None:
            if tail is None:
                raise malformed(f"{INPUTS}[{index}] has a {BINARY_SIZE}, but there is no header length")
            tensor = msgspec.structs.replace(tensor, tail=Span(at, at + size))
            at += size
        tensors[tensor.name] = tensor
    if tail is not None and at != tail.end:
        raise malformed(f"the sizes add up to {at - tail.start} bytes, {tail.end - tail.start} follow the JSON")
    return Inputs(array or b"", tuple(tensors.values()))


def malformed(why: str) -> ClientFault:
    return ClientFault(400, "invalid_tensors", f"The request's tensors cannot be read: {why}.", param=INPUTS)


def _places(array: bytes | None) -> list[Span]:
    """Where each element of a JSON array stands."""
    if array is None:
        return []
    try:
        elements = _elements(array)
    except (msgspec.MsgspecError, RecursionError):
        raise malformed(f"'{INPUTS}' is not an array") from None
    if len(elements) > MAX_INPUTS:
        raise ClientFault(400, "too_many_inputs", f"'{INPUTS}' has more than {MAX_INPUTS} elements.", param=INPUTS)
    places: list[Span] = []
    at = array.index(b"[") + 1
    for element in elements:
        start = _end_of_space(array, at)
        end = start + len(bytes(element))
        places.append(Span(start, end))
        at = _end_of_space(array, end) + 1
    return places


def _elements(array: bytes) -> list[msgspec.Raw]:
    """The elements; of a large array those up to the first that is too many."""
    if len(array) <= _SMALL_ARRAY:
        return _ELEMENTS.decode(array)
    return [each for each in msgspec.structs.astuple(_FIRST_ELEMENTS.decode(array)) if each is not _NONE]


def _end_of_space(array: bytes, at: int) -> int:
    match = _SPACE.match(array, at)
    assert match is not None, "the pattern matches the empty string"
    return match.end()


def _tensor(raw: bytes, place: Span, index: int, max_keys: int) -> tuple[Input, int | None]:
    """One tensor and the size it claims of the tail; ClientFault 400 where it has its elements twice."""
    where = f"{INPUTS}[{index}]"
    values = _members(raw, max_keys, where)
    nested = values.get(PARAMETERS)
    parameters = {} if nested is None else _members(bytes(nested), max_keys, f"{where}.{PARAMETERS}")
    name = _string(values.get("name"))
    if name is None:
        raise malformed(f"{where} has no name")
    if (BINARY_SIZE in parameters) + (SHARED_MEMORY in parameters) + (DATA in values) > 1:
        raise malformed(f"{where} has more than one of {DATA}, {BINARY_SIZE} and {SHARED_MEMORY}")
    repeated = _may_repeat(raw, values, parameters) and (
        parse(raw, max_keys=max_keys).rewritten
        or (nested is not None and parse(bytes(nested), max_keys=max_keys).rewritten)
    )
    return Input(name, values, parameters, repeated, place, None), _size(parameters, where)


def _size(parameters: Mapping[str, msgspec.Raw], where: str) -> int | None:
    raw = parameters.get(BINARY_SIZE)
    if raw is None:
        return None
    digits = bytes(raw)
    if not (digits.isdigit() and len(digits) <= MAX_SIZE_DIGITS):
        raise malformed(f"the {BINARY_SIZE} of {where} is not a whole number of bytes, 0 or more")
    return int(digits)


def _members(raw: bytes, max_keys: int, where: str) -> dict[str, msgspec.Raw]:
    try:
        values = _MEMBERS.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        raise malformed(f"{where} is not an object") from None
    if len(values) > max_keys:
        raise ClientFault(400, "too_many_keys", f"{where} has more than {max_keys} keys.")
    return values


def _may_repeat(raw: bytes, *objects: Mapping[str, msgspec.Raw]) -> bool:
    """Whether a key may stand twice: each has a colon of its own, and `parse` costs ten times this."""
    return raw.count(b":") != sum(map(len, objects))


def _string(raw: msgspec.Raw | None) -> str | None:
    quoted = b"" if raw is None else bytes(raw)
    return str(scalar(quoted)) if quoted[:1] == b'"' else None

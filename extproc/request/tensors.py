"""Elements of a tensor as Triton's infer carries them: packed little-endian, or numbers and strings in JSON.

Elements are clipped one by one where they stand, and one inside the bounds keeps its bytes: a number's
spelling, a NaN's payload. The rejected alternative, numpy, is a large dependency that knows no BF16 for
what `struct` does; a tensor of parameters has a few elements, and MAX_ELEMENTS bounds the time of one.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from extproc.request import text
from extproc.request.json_object import encode, number

Number = int | float

MAX_ELEMENTS = 16_384
"""Of a tensor whose elements are read one by one. A parameter has one per entry of a batch."""

_NUMBER = re.compile(rb"-?[0-9][0-9.eE+-]*+")
_ANY = msgspec.json.Decoder()
_BETWEEN = b"[], \t\n\r"


class Clip(Struct, frozen=True):
    """Elements below `low` become it; elements that are not at most `high`, NaN too, become that."""

    low: Number = -math.inf
    high: Number = math.inf


class Kind(Struct, frozen=True):
    """A numeric datatype: its code in `struct`, bytes per element, finite range, whether integral."""

    code: str
    size: int
    least: Number
    most: Number
    whole: bool


def _integers(bits: int, signed: str, unsigned: str) -> dict[str, Kind]:
    half = 1 << (bits - 1)
    return {
        f"INT{bits}": Kind(signed, bits // 8, -half, half - 1, True),
        f"UINT{bits}": Kind(unsigned, bits // 8, 0, 2 * half - 1, True),
    }


def _floats(name: str, code: str, size: int, most: float) -> dict[str, Kind]:
    return {name: Kind(code, size, -most, most, False)}


KINDS: dict[str, Kind] = (
    _integers(8, "b", "B")
    | _integers(16, "h", "H")
    | _integers(32, "i", "I")
    | _integers(64, "q", "Q")
    | _floats("FP16", "e", 2, 65504.0)
    | _floats("BF16", "", 2, float.fromhex("0x1.fep127"))
    | _floats("FP32", "f", 4, float.fromhex("0x1.fffffep127"))
    | _floats("FP64", "d", 8, float.fromhex("0x1.fffffffffffffp1023"))
)
"""By Triton's name of the datatype. BF16 has no code in `struct`: it is the upper half of an FP32."""

_BF16 = KINDS["BF16"]


def unpacked(kind: Kind, data: memoryview) -> Sequence[Number]:
    """The elements; `data` is a whole number of them."""
    count = len(data) // kind.size
    if kind is not _BF16:
        return struct.unpack(f"<{count}{kind.code}", data)
    wide = bytearray(4 * count)
    wide[2::4], wide[3::4] = data[0::2], data[1::2]
    return struct.unpack(f"<{count}f", wide)


def packed(kind: Kind, value: Number) -> bytes:
    """One element: integers floored, floats to the nearest, and nothing beyond the finite range."""
    value = min(max(value, kind.least), kind.most)
    if kind.whole:
        return math.floor(value).to_bytes(kind.size, "little", signed=kind.least < 0)
    if kind is not _BF16:
        return struct.pack(f"<{kind.code}", value)
    bits = int.from_bytes(struct.pack("<f", value), "little")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).to_bytes(2, "little")


def packed_below(kind: Kind, value: Number) -> bytes:
    """One element that is at most `value`: the nearest, or the next representable one towards -inf."""
    data = packed(kind, value)
    if kind.whole or unpacked(kind, memoryview(data))[0] <= value or value < kind.least:
        return data
    bits = int.from_bytes(data, "little")
    negative = bits >> (8 * kind.size - 1)
    return (bits + (1 if negative else -1)).to_bytes(kind.size, "little")


def clipped(kind: Kind, data: memoryview, clip: Clip) -> bytes:
    """The same number of elements, each inside the bounds."""
    low, high = packed(kind, clip.low), packed_below(kind, clip.high)
    changed = bytearray(data)
    for index, value in enumerate(unpacked(kind, data)):
        at = index * kind.size
        if not value <= clip.high:
            changed[at : at + kind.size] = high
        elif value < clip.low:
            changed[at : at + kind.size] = low
    return bytes(changed)


def json_numbers(data: bytes) -> list[Number] | None:
    """The numbers in a JSON value that may nest lists; None where anything but numbers stands in it."""
    if _NUMBER.sub(b"", data).translate(None, _BETWEEN):
        return None
    return [number(found) for found in _NUMBER.findall(data)]


def json_clipped(data: bytes, clip: Clip, *, whole: bool) -> bytes:
    """The same JSON with each number inside the bounds; whole numbers are floored."""

    def inside(match: re.Match[bytes]) -> bytes:
        value = number(match[0])
        if value <= clip.high:
            return match[0] if value >= clip.low else _json(clip.low, whole)
        return _json(clip.high, whole)

    return _NUMBER.sub(inside, data)


def json_text(data: bytes, max_chars: int) -> str:
    """Text of the strings in a JSON value that may nest lists, of MAX_ELEMENTS at most."""
    try:
        pending = [_ANY.decode(data)]
    except (msgspec.MsgspecError, RecursionError):
        return ""
    found: list[str] = []
    while pending and len(found) < MAX_ELEMENTS:
        item = pending.pop()
        if isinstance(item, list):
            pending.extend(reversed(item))
        elif isinstance(item, str):
            found.append(item)
    return text.bounded("\n".join(found), max_chars)


def strings(data: memoryview) -> list[memoryview] | None:
    """The elements of a BYTES tensor, each behind its length in 4 bytes.

    None where a length does not fit, or where there are more than MAX_ELEMENTS.
    """
    found: list[memoryview] = []
    at = 0
    while at < len(data):
        start = at + 4
        at = start + int.from_bytes(data[at:start], "little")
        if at > len(data) or len(found) == MAX_ELEMENTS:
            return None
        found.append(data[start:at])
    return found


def packed_text(elements: Sequence[memoryview], max_chars: int) -> str:
    """Text of BYTES elements; what is not UTF-8 in it reads as replacement characters."""
    return text.bounded("\n".join(_ends(element, max_chars) for element in elements), max_chars)


def _ends(data: memoryview, max_chars: int) -> str:
    """The text, decoded no further than a bound by characters can need: one has up to 4 bytes."""
    reach = 4 * max_chars
    if len(data) <= 2 * reach:
        return str(data, "utf-8", "replace")
    return str(data[:reach], "utf-8", "replace") + str(data[-reach:], "utf-8", "replace")


def _json(value: Number, whole: bool) -> bytes:
    return encode(math.floor(value) if whole else float(value))

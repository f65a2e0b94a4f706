"""Elements of tensors: packed and in JSON, clipped one by one."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.request import tensors
from extproc.request.tensors import KINDS, Clip

NUMPY = {
    "INT8": "<i1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "UINT8": "<u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
}
FLOATS = ("FP16", "BF16", "FP32", "FP64")
finite = st.floats(allow_nan=False, allow_infinity=False)


def bf16(*values: float) -> bytes:
    """Values that BF16 holds exactly."""
    return b"".join(struct.pack("<f", value)[2:] for value in values)


def value_of(name: str, data: bytes) -> float:
    (value,) = tensors.unpacked(KINDS[name], memoryview(data))
    return value


def neighbour_above(name: str, data: bytes) -> float:
    """The next representable number towards +inf."""
    bits = int.from_bytes(data, "little")
    top = 1 << (8 * len(data) - 1)
    bits = 1 if bits in (0, top) else bits - 1 if bits & top else bits + 1
    return value_of(name, bits.to_bytes(len(data), "little"))


@pytest.mark.parametrize("name", NUMPY)
@given(data=st.binary(max_size=64))
@settings(deadline=None)
def test_unpacked_reads_what_numpy_reads(name: str, data: bytes) -> None:
    kind = KINDS[name]
    data = data[: len(data) // kind.size * kind.size]
    expected = np.frombuffer(data, NUMPY[name]).tolist()
    np.testing.assert_array_equal(list(tensors.unpacked(kind, memoryview(data))), expected)


def test_bf16_is_the_upper_half_of_a_float() -> None:
    data = bf16(0.0, 1.0, -2.5, 3.140625, math.inf)
    assert list(tensors.unpacked(KINDS["BF16"], memoryview(data))) == [0.0, 1.0, -2.5, 3.140625, math.inf]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("INT32", 7.9, 7),
        ("INT32", -0.5, -1),
        ("INT8", 4096, 127),
        ("INT8", -4096, -128),
        ("UINT8", -1, 0),
        ("UINT64", math.inf, 2**64 - 1),
        ("FP16", 1e9, 65504.0),
        ("FP32", 1e300, float(np.finfo(np.float32).max)),
        ("FP64", 10**400, float(np.finfo(np.float64).max)),
        ("BF16", math.inf, float.fromhex("0x1.fep127")),
        ("BF16", 1.00390625, 1.0),  # a tie: to even
        ("BF16", 1.01171875, 1.015625),
        ("FP32", 0.3, float(np.float32(0.3))),
    ],
)
def test_packed(name: str, value: float, expected: float) -> None:
    assert value_of(name, tensors.packed(KINDS[name], value)) == expected


@pytest.mark.parametrize("name", FLOATS)
@given(value=finite | st.integers(0, 2**70))
@settings(deadline=None)
def test_packed_below_is_the_largest_element_that_is_not_above(name: str, value: float) -> None:
    kind = KINDS[name]
    data = tensors.packed_below(kind, value)
    if value < kind.least:
        assert value_of(name, data) == kind.least
    else:
        assert value_of(name, data) <= value
        assert value_of(name, data) == kind.most or neighbour_above(name, data) > value


def test_packed_below_rounds_down_where_the_nearest_is_above() -> None:
    assert float(np.float32(0.3)) > 0.3
    assert value_of("FP32", tensors.packed_below(KINDS["FP32"], 0.3)) == 0.29999998211860657
    assert value_of("FP32", tensors.packed_below(KINDS["FP32"], 1e-60)) == 0.0
    assert value_of("FP32", tensors.packed_below(KINDS["FP32"], -1e-60)) < 0.0
    assert value_of("FP64", tensors.packed_below(KINDS["FP64"], 2**53 + 3)) == 2**53 + 2


@pytest.mark.parametrize("name", [*NUMPY, "BF16"])
@given(data=st.binary(max_size=64), low=st.integers(0, 200), above=st.integers(0, 200))
@settings(deadline=None)
def test_clipped_moves_only_elements_outside(name: str, data: bytes, low: int, above: int) -> None:
    kind = KINDS[name]
    data = data[: len(data) // kind.size * kind.size]
    clip = Clip(low, low + above)
    after = tensors.clipped(kind, memoryview(data), clip)
    assert len(after) == len(data)
    for at in range(0, len(data), kind.size):
        old, new = data[at : at + kind.size], after[at : at + kind.size]
        if clip.low <= value_of(name, old) <= clip.high:
            assert new == old
        else:
            assert min(clip.low, kind.most) <= value_of(name, new) <= clip.high


def test_clipped_by_example() -> None:
    data = struct.pack("<4i", 1, 50, 300, -7)
    assert tensors.clipped(KINDS["INT32"], memoryview(data), Clip(high=50.9)) == struct.pack("<4i", 1, 50, 50, -7)
    assert tensors.clipped(KINDS["INT32"], memoryview(data), Clip(10, 300)) == struct.pack("<4i", 10, 50, 300, 10)
    nan = struct.pack("<2f", math.nan, 0.2)
    assert tensors.clipped(KINDS["FP32"], memoryview(nan), Clip(high=0.5)) == struct.pack("<2f", 0.5, 0.2)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"[]", []),
        (b"[ [1, 2],\n[3] ]", [1, 2, 3]),
        (b"[1E2,-0.5,12345678901234567890]", [100, -0.5, 12345678901234567890.0]),
        (b"[1e400]", [math.inf]),
        (b"7", [7]),
        (b"[true]", None),
        (b'["7"]', None),
        (b"[null]", None),
        (b"[1,{}]", None),
    ],
)
def test_json_numbers(data: bytes, expected: list[float] | None) -> None:
    assert tensors.json_numbers(data) == expected


@pytest.mark.parametrize(
    ("data", "clip", "whole", "expected"),
    [
        (b"[ 1E1, 3e2 ,\t9007199254740993]", Clip(high=256), True, b"[ 1E1, 256 ,\t256]"),
        (b"[[0.1000],[0.9]]", Clip(high=0.7), False, b"[[0.1000],[0.7]]"),
        (b"[1, 0]", Clip(high=0.7), True, b"[0, 0]"),
        (b"[0.5, 2]", Clip(high=1), False, b"[0.5, 1.0]"),
        (b"[0.5, 0.95]", Clip(0.92, 0.95), False, b"[0.92, 0.95]"),
        (b"[-1, 0, 40]", Clip(1, 1), True, b"[1, 1, 1]"),
        (b"[1e400, -0.0]", Clip(high=5), False, b"[5.0, -0.0]"),
        (b"[]", Clip(1, 1), True, b"[]"),
    ],
)
def test_json_clipped(data: bytes, clip: Clip, whole: bool, expected: bytes) -> None:
    assert tensors.json_clipped(data, clip, whole=whole) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'["hello"]', "hello"),
        (b'[["a"],["b","\\u4f60"]]', "a\nb\n你"),
        (b'"bare"', "bare"),
        (b"[1,2]", ""),
        (b"[" * 5000 + b"]" * 5000, ""),
    ],
)
def test_json_text(data: bytes, expected: str) -> None:
    assert tensors.json_text(data, 100) == expected


def test_json_text_is_bounded() -> None:
    assert tensors.json_text(b'["' + b"a" * 50 + b"z" * 50 + b'"]', 10) == "aaaaa\nzzzzz"


@given(elements=st.lists(st.binary(max_size=20), max_size=8))
def test_strings_undo_the_length_prefixes(elements: list[bytes]) -> None:
    data = b"".join(len(element).to_bytes(4, "little") + element for element in elements)
    found = tensors.strings(memoryview(data))
    assert found is not None
    assert [bytes(element) for element in found] == elements


@pytest.mark.parametrize("data", [b"\x01", b"\x00\x00\x00", b"\x02\x00\x00\x00a", b"\xff\xff\xff\xffabc"])
def test_strings_refuse_a_length_that_does_not_fit(data: bytes) -> None:
    assert tensors.strings(memoryview(data)) is None


def test_strings_are_bounded_in_number() -> None:
    assert len(tensors.strings(memoryview(bytes(4 * tensors.MAX_ELEMENTS))) or []) == tensors.MAX_ELEMENTS
    assert tensors.strings(memoryview(bytes(4 * tensors.MAX_ELEMENTS + 4))) is None


@given(prompt=st.text(st.characters(exclude_categories=["Cs"]), max_size=200), max_chars=st.integers(2, 50))
def test_packed_text_of_valid_utf8_equals_the_bounded_text(prompt: str, max_chars: int) -> None:
    half = max_chars // 2
    expected = prompt if len(prompt) <= max_chars else f"{prompt[:half]}\n{prompt[-half:]}"
    assert tensors.packed_text([memoryview(prompt.encode())], max_chars) == expected


def test_packed_text_survives_bytes_that_are_no_text() -> None:
    assert tensors.packed_text([memoryview(b"ok\xff"), memoryview(b"next")], 100) == "ok\ufffd\nnext"

"""Triton infer: fields in tensors and in `parameters`, in JSON and in the binary tail."""

from __future__ import annotations

import json
import math
import struct
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonclient.http import InferenceServerClient, InferInput  # type: ignore[import-untyped]

from extproc.errors import ClientFault
from extproc.model.names import Dialect, Engine, Family, Field
from extproc.model.values import ABSENT, Change, Target, Value
from extproc.registry import TensorNames, TritonRules
from extproc.request.dialects import triton_infer
from extproc.request.dialects.triton_infer import HEADER_LENGTH, TritonInferDocument
from extproc.request.document import Reading, Writing
from extproc.request.headers import Headers

RULES = TritonRules(
    generate_place="parameters",
    generate_priority=True,
    tensors=TensorNames(
        max_tokens="out_len",
        temperature="temperature",
        top_p="top_p",
        top_k="top_k",
        beams="beam_width",
        text="text_input",
    ),
)
NONE = TritonRules(
    generate_place="parameters",
    generate_priority=True,
    tensors=TensorNames(max_tokens=None, temperature=None, top_p=None, top_k=None, beams=None, text=None),
)
SECRET = "SECRET"


def reading(*lengths: bytes, max_chars: int = 1000) -> Reading:
    return Reading(
        target=Target(Family.TRITON, Dialect.TRITON_INFER, "m"),
        headers=Headers((HEADER_LENGTH, length) for length in lengths),
        max_keys=50,
        max_chars=max_chars,
        triton={"m": RULES}.__getitem__,
    )


def read(head: bytes, tail: bytes | None = None) -> TritonInferDocument:
    if tail is None:
        return triton_infer.read(head, reading())
    return triton_infer.read(head + tail, reading(b"%d" % len(head)))


def write(document: TritonInferDocument, *changes: Change) -> tuple[bytes, bytes]:
    """(JSON part, tail) as Triton will cut the body, by the header that leaves."""
    written = document.write(changes, Writing(Engine.TRITON, RULES))
    headers = dict(written.headers)
    assert headers.keys() <= {HEADER_LENGTH}
    head = int(headers.get(HEADER_LENGTH, b"%d" % document.head))
    if not document.framed:
        assert not headers
        head = len(written.body)
    json.loads(written.body[:head])
    return written.body[:head], written.body[head:]


def change(field: Field, before: Value, after: Value) -> Change:
    return Change(field, before, after, "rule", "reason")


def tensor(name: str, datatype: str, data: str) -> bytes:
    return b'{"name":"%s","shape":[1,1],"datatype":"%s","data":%s}' % tuple(
        part.encode() for part in (name, datatype, data)
    )


def binary(name: str, datatype: str, size: int) -> bytes:
    return b'{"name":"%s","shape":[1,1],"datatype":"%s","parameters":{"binary_data_size":%d}}' % (
        name.encode(),
        datatype.encode(),
        size,
    )


def body(*inputs: bytes, parameters: bytes | None = None) -> bytes:
    extra = b"" if parameters is None else b',"parameters":' + parameters
    return b'{"id":"7","inputs":[' + b",".join(inputs) + b"]" + extra + b"}"


# Reading


def test_fields_in_json_tensors() -> None:
    request = read(
        body(
            tensor("text_input", "BYTES", '[["Where is ","my order?"]]'),
            tensor("out_len", "INT32", "[[100],[300]]"),
            tensor("temperature", "FP32", "[0.9]"),
            tensor("top_p", "FP32", "[1.0]"),
            tensor("top_k", "INT32", "[-1, 40]"),
            tensor("beam_width", "UINT32", "[4]"),
            tensor("other", "INT32", "[999]"),
        )
    ).request
    assert request.dialect is Dialect.TRITON_INFER
    assert request.model == "m"
    assert request.text == "Where is \nmy order?"
    assert request.given == {
        Field.MAX_TOKENS: 300,
        Field.TEMPERATURE: 0.9,
        Field.TOP_P: 1,
        Field.TOP_K: 40,
        Field.BEAMS: 4,
    }
    assert request.length_keys == ("out_len",)
    assert request.insertable == {Field.PRIORITY}
    assert not request.stream


@pytest.mark.parametrize(
    ("datatype", "data", "expected"),
    [
        ("INT8", struct.pack("<2b", 5, 100), 100),
        ("INT16", struct.pack("<2h", 300, 2), 300),
        ("INT32", struct.pack("<i", 70000), 70000),
        ("INT64", struct.pack("<q", 2**40), 2**40),
        ("UINT8", b"\xff", 255),
        ("UINT16", b"\xff\xff", 65535),
        ("UINT32", b"\xff\xff\xff\xff", 2**32 - 1),
        ("UINT64", b"\xff" * 8, 2**64 - 1),
        ("FP16", struct.pack("<e", 300), 300),
        ("BF16", struct.pack("<f", 256)[2:], 256),
        ("FP32", struct.pack("<2f", 5, 1e20), int(struct.unpack("<f", struct.pack("<f", 1e20))[0])),
        ("FP64", struct.pack("<d", 123456), 123456),
        ("INT32", b"", None),
    ],
)
def test_length_in_the_tail(datatype: str, data: bytes, expected: int | None) -> None:
    request = read(body(binary("out_len", datatype, len(data))), data).request
    assert request.given.get(Field.MAX_TOKENS) == expected
    assert isinstance(request.given.get(Field.MAX_TOKENS), int | None)
    assert request.length_keys == ("out_len",)


def test_fields_in_parameters() -> None:
    request = read(
        body(
            parameters=b'{"max_tokens":90,"n_predict":80,"temperature":0.5,"n":64,"priority":2,"min_p":0.1,"x":"y"}'
        )
    ).request
    assert request.given == {
        Field.MAX_TOKENS: 80,
        Field.TEMPERATURE: 0.5,
        Field.N: 64,
        Field.PRIORITY: 2,
        Field.MIN_P: 0.1,
    }
    assert set(request.length_keys) == {"max_tokens", "n_predict"}


def test_both_places_give_the_smallest_length_and_the_largest_of_the_rest() -> None:
    request = read(
        body(
            tensor("out_len", "INT32", "[100, 300]"),
            tensor("temperature", "FP32", "[0.5]"),
            parameters=b'{"max_tokens":200,"temperature":0.9}',
        )
    ).request
    assert request.given == {Field.MAX_TOKENS: 200, Field.TEMPERATURE: 0.9}
    assert request.length_keys == ("out_len", "max_tokens")


def test_a_model_without_named_tensors_reads_parameters_alone() -> None:
    head = body(tensor("out_len", "INT32", "[-5]"), tensor("", "BYTES", '["t"]'), parameters=b'{"max_tokens":5}')
    bare = Reading(Target(Family.TRITON, Dialect.TRITON_INFER), Headers(()), 50, 100, lambda _: NONE)
    request = triton_infer.read(head, bare).request
    assert (request.model, request.text, request.given) == ("", "", {Field.MAX_TOKENS: 5})


def test_text_in_the_tail() -> None:
    texts = [b"caf\xc3\xa9", b"", b"\xe4\xbd\xa0"]
    data = b"".join(struct.pack("<I", len(each)) + each for each in texts)
    assert read(body(binary("text_input", "BYTES", len(data))), data).request.text == "café\n\n你"


def test_text_is_bounded_and_its_ends_stay() -> None:
    data = struct.pack("<I", 1000) + b"a" * 500 + b"z" * 500
    head = body(binary("text_input", "BYTES", len(data)))
    document = triton_infer.read(head + data, reading(b"%d" % len(head), max_chars=10))
    assert document.request.text == "aaaaa\nzzzzz"


@pytest.mark.parametrize("datatype", ["INT32", "FOO", "BOOL"])
def test_text_of_another_datatype_is_none(datatype: str) -> None:
    assert read(body(binary("text_input", datatype, 4)), b"\xff\xff\xff\xff").request.text == ""


@pytest.mark.parametrize("datatype", ["BOOL", "BYTES", "FOO"])
def test_a_sampling_tensor_that_is_no_number_is_left_alone(datatype: str) -> None:
    document = read(body(binary("temperature", datatype, 5)), b"\x01\x00\x00\x00x")
    assert document.request.given == {}
    assert write(document, change(Field.TEMPERATURE, 1, 0))[1] == b"\x01\x00\x00\x00x"


# Refusing


@pytest.mark.parametrize(
    "lengths",
    [
        (b"",),
        (b"-1",),
        (b"+2",),
        (b" 2",),
        (b"2.0",),
        (b"0x2",),
        (b"two",),
        (b"2abc",),
        (b"\xb2",),
        (b"9" * 9999,),
        (b"15",),
        (b"14", b"14"),
    ],
)
def test_a_header_that_is_no_length_of_this_body_is_400(lengths: tuple[bytes, ...]) -> None:
    with pytest.raises(ClientFault) as caught:
        triton_infer.read(b'{"inputs": []}', reading(*lengths))
    assert (caught.value.status, caught.value.reason) == (400, "invalid_tensors")
    assert HEADER_LENGTH in caught.value.message


@pytest.mark.parametrize(
    ("head", "tail"),
    [
        (body(binary("x", "INT32", 4)), b"123"),
        (body(binary("x", "INT32", 4)), b"12345"),
        (body(binary("x", "INT32", 4)), b""),
        (body(binary("x", "INT32", 4)), None),
        (body(), b"1"),
        (b"{}", b"1"),
        (body(binary("x", "INT32", 2), binary("x", "INT32", 2)), b"1234"),
        (body(tensor("x", "INT32", "[1]"), tensor("x", "INT32", "[2]")), None),
        (b'{"inputs":{"SECRET":1}}', None),
        (b'{"inputs":["SECRET"]}', None),
    ],
)
def test_tensors_that_cannot_be_read_are_400(head: bytes, tail: bytes | None) -> None:
    with pytest.raises(ClientFault) as caught:
        read(head, tail)
    assert (caught.value.status, caught.value.reason) == (400, "invalid_tensors")
    assert SECRET not in caught.value.message


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b'{"inputs":[],}',
        b'{"inputs":NaN}',
        b'\xef\xbb\xbf{"inputs":[]}',
        b'{"id":"SECRET\xe4\xbd","inputs":[]}',
        b'{"x":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    ],
)
@pytest.mark.parametrize("tail", [None, b""])
def test_json_that_is_none_is_400(head: bytes, tail: bytes | None) -> None:
    with pytest.raises(ClientFault) as caught:
        read(head, tail)
    assert (caught.value.status, caught.value.reason) == (400, "invalid_json")
    assert SECRET not in caught.value.message


@pytest.mark.parametrize(
    ("name", "datatype", "data"),
    [
        ("out_len", "INT32", struct.pack("<2i", 5, -1)),
        ("out_len", "FP32", struct.pack("<f", math.nan)),
        ("out_len", "FP32", struct.pack("<2f", 5, math.inf)),
        ("out_len", "FP32", struct.pack("<f", 99.5)),
        ("out_len", "FP16", b"\x00\x7e"),
        ("out_len", "BF16", b"\xc0\x7f"),
        ("out_len", "INT32", b"123"),
        ("out_len", "BYTES", struct.pack("<I", 1) + b"5"),
        ("out_len", "BOOL", b"\x01"),
        ("out_len", "int32", b"1234"),
        ("temperature", "FP32", struct.pack("<f", -0.5)),
        ("temperature", "FP32", struct.pack("<f", math.nan)),
        ("top_p", "FP64", struct.pack("<d", math.inf)),
        ("beam_width", "FP32", struct.pack("<f", 1.5)),
        ("top_k", "INT32", b"12345"),
        ("out_len", "INT8", bytes(16_385)),
        ("text_input", "BYTES", b"\xff\x00\x00\x00SECRET"),
        ("text_input", "BYTES", b"\x01\x00"),
    ],
)
def test_a_tensor_in_the_tail_that_cannot_be_its_field_is_400(name: str, datatype: str, data: bytes) -> None:
    with pytest.raises(ClientFault) as caught:
        read(body(binary(name, datatype, len(data))), data)
    assert (caught.value.status, caught.value.param) == (400, name)
    assert f"'{name}'" in caught.value.message
    assert SECRET not in caught.value.message


@pytest.mark.parametrize(
    ("name", "datatype", "data"),
    [
        ("out_len", "INT32", "[5, -1]"),
        ("out_len", "INT32", "[1.5]"),
        ("out_len", "INT32", '["SECRET"]'),
        ("out_len", "INT32", "[null]"),
        ("out_len", "INT32", "[true]"),
        ("out_len", "INT32", '{"SECRET":5}'),
        ("out_len", "FP32", "[1e400]"),
        ("out_len", "BYTES", '["5"]'),
        ("temperature", "FP32", "[-1]"),
        ("temperature", "FP32", '["0.5"]'),
        ("beam_width", "INT32", "[2.5]"),
        ("top_k", "INT32", "[" + "1," * 16_384 + "1]"),
    ],
)
def test_a_tensor_in_json_that_cannot_be_its_field_is_400(name: str, datatype: str, data: str) -> None:
    with pytest.raises(ClientFault) as caught:
        read(body(tensor(name, datatype, data)))
    assert (caught.value.status, caught.value.param) == (400, name)
    assert SECRET not in caught.value.message


def test_a_parameter_in_shared_memory_cannot_be_judged() -> None:
    shared = b'{"name":"%s","shape":[1],"datatype":"INT32","parameters":{"shared_memory_region":"r"}}'
    with pytest.raises(ClientFault) as caught:
        read(body(shared % b"out_len"))
    assert caught.value.param == "out_len"
    assert read(body(shared % b"image")).request.given == {}


@pytest.mark.parametrize("parameters", [b"[]", b"null", b'"SECRET"', b"1"])
def test_parameters_that_are_no_object_are_400(parameters: bytes) -> None:
    with pytest.raises(ClientFault) as caught:
        read(body(parameters=parameters))
    assert (caught.value.status, caught.value.param) == (400, "parameters")


# Writing


def test_nothing_changes_without_changes() -> None:
    whole = b' { "inputs" : [ ' + binary("x", "FP32", 4) + b' ] , "parameters" : {"z" : 1E2} }\n'
    document = triton_infer.read(whole + b"1234", reading(b"%d" % len(whole)))
    written = document.write([], Writing(Engine.TRITON, RULES))
    assert written.body is document.body
    assert written.headers == ()


def test_json_data_alone_changes() -> None:
    before = (
        b'{ "id" : "\\u00e9", "inputs": [ {"name": "big", "data": [9007199254740993, 1E2, -0.0]},\n'
        b'  {"data": [[ 100 ], [9e2]], "na\\u006de": "out_len", "datatype": "INT32", "x": {"a": [0.1000]}} ] }'
    )
    head, _ = write(read(before), change(Field.MAX_TOKENS, 900, 256))
    assert head == before.replace(b"9e2", b"256")


def test_the_tail_is_capped_in_place() -> None:
    head = body(binary("a", "FP32", 8), binary("out_len", "INT32", 12), binary("b", "BYTES", 3))
    tail = b"\xff\x00\x01\x02\x03\x04\x05\x06" + struct.pack("<3i", 10, 256, 4096) + b"xyz"
    document = read(head, tail)
    written = document.write([change(Field.MAX_TOKENS, 4096, 256)], Writing(Engine.TRITON, RULES))
    expected = b"\xff\x00\x01\x02\x03\x04\x05\x06" + struct.pack("<3i", 10, 256, 256) + b"xyz"
    assert written.body == head + expected
    assert written.headers == ()


@pytest.mark.parametrize(
    ("name", "datatype", "old", "changed", "new"),
    [
        ("temperature", "FP64", "<2d:0.2,0.9", (Field.TEMPERATURE, 0.9, 0.3), "<2d:0.2,0.3"),
        ("temperature", "FP32", "<2f:0.2,0.9", (Field.TEMPERATURE, 0.9, 0.3), "<2f:0.2,0.29999998211860657"),
        ("temperature", "FP16", "<e:0.9", (Field.TEMPERATURE, 0.9, 0.3), "<e:0.2998046875"),
        ("temperature", "INT8", "<3b:0,1,2", (Field.TEMPERATURE, 2, 0.7), "<3b:0,0,0"),
        ("top_p", "FP32", "<2f:0.5,1.0", (Field.TOP_P, 1, 0.92), "<2f:0.5,0.9199999570846558"),
        ("top_p", "FP32", "<2f:0.5,0.25", (Field.TOP_P, 0.5, 0.92), "<2f:0.92,0.92"),
        ("top_k", "INT32", "<3i:-1,0,40", (Field.TOP_K, 40, ABSENT), "<3i:1,1,1"),
        ("top_k", "FP32", "<2f:nan,40", (Field.TOP_K, 40, ABSENT), "<2f:1,1"),
        ("beam_width", "UINT8", "<2B:9,1", (Field.BEAMS, 9, 4), "<2B:4,1"),
        ("out_len", "INT32", "<2i:1,4", (Field.MAX_TOKENS, 4, 16), "<2i:16,16"),
        ("out_len", "INT8", "<b:4", (Field.MAX_TOKENS, 4, 4096), "<b:127"),
        ("out_len", "UINT64", "<2Q:18446744073709551615,7", (Field.MAX_TOKENS, 2**64 - 1, 256), "<2Q:256,7"),
        ("out_len", "INT32", "<i:40", (Field.MAX_TOKENS, 40, ABSENT), "<i:40"),
        ("temperature", "FP32", "<f:0.5", (Field.TEMPERATURE, 0.5, ABSENT), "<f:0.5"),
        ("temperature", "FP32", "<f:0.5", (Field.STREAM, ABSENT, False), "<f:0.5"),
    ],
)
def test_elements_change_one_by_one(
    name: str, datatype: str, old: str, changed: tuple[Field, Value, Value], new: str
) -> None:
    tail = _packed(old)
    document = read(body(binary(name, datatype, len(tail)), binary("z", "INT8", 1)), tail + b"z")
    _, written = write(document, change(*changed))
    assert written == _packed(new) + b"z"


def _packed(text: str) -> bytes:
    code, _, values = text.partition(":")
    numbers = values.split(",")
    return struct.pack(code, *(float(v) if code[-1] in "efd" else int(v) for v in numbers))


def test_bf16_is_rounded_down() -> None:
    tail = struct.pack("<f", 0.875)[2:]
    _, written = write(read(body(binary("temperature", "BF16", 2)), tail), change(Field.TEMPERATURE, 1, 0.3))
    (value,) = struct.unpack("<f", b"\0\0" + written)
    assert 0.298 < value <= 0.3


@pytest.mark.parametrize(
    ("datatype", "old", "before", "after", "new"),
    [
        ("FP32", "[0.9, 0.1000]", 0.9, 0.3, "[0.3, 0.1000]"),
        ("FP32", "[[2],[0.5]]", 2, 1, "[[1.0],[0.5]]"),
        ("INT32", "[2]", 2, 0.7, "[0]"),
        ("FP32", "[]", ABSENT, 0.7, "[]"),
    ],
)
def test_json_elements_change_one_by_one(datatype: str, old: str, before: Value, after: Value, new: str) -> None:
    document = read(body(tensor("temperature", datatype, old)))
    head, _ = write(document, change(Field.TEMPERATURE, before, after))
    assert head == body(tensor("temperature", datatype, new))


def test_without_sampling_top_k_is_one_in_a_tensor_and_gone_in_parameters() -> None:
    document = read(body(tensor("top_k", "INT32", "[40, -1]"), parameters=b'{"top_k":40, "min_p":0.1,"x":1}'))
    head, _ = write(document, change(Field.TOP_K, 40, ABSENT), change(Field.MIN_P, 0.1, ABSENT))
    assert head == body(tensor("top_k", "INT32", "[1, 1]"), parameters=b'{"x":1}')


@pytest.mark.parametrize(
    ("parameters", "after"),
    [
        (None, b'{"priority":1}'),
        (b"{}", b'{"priority":1}'),
        (b'{ "x": 1E2 }', b'{ "x": 1E2,"priority":1 }'),
        (b'{"priority":3,"x":1}', b'{"priority":1,"x":1}'),
        (b'{"priority":"high"}', b'{"priority":1}'),
    ],
)
def test_priority_goes_into_parameters_and_the_header_follows(parameters: bytes | None, after: bytes) -> None:
    old = body(binary("x", "INT8", 3), parameters=parameters)
    document = read(old, b"\x00\xffx")
    head, tail = write(document, change(Field.PRIORITY, ABSENT, 1))
    assert head == body(binary("x", "INT8", 3), parameters=after)
    assert tail == b"\x00\xffx"
    written = document.write([change(Field.PRIORITY, ABSENT, 1)], Writing(Engine.TRITON, RULES))
    moved = ((HEADER_LENGTH, b"%d" % len(head)),)
    assert written.headers == (() if len(head) == len(old) else moved)


@pytest.mark.parametrize(
    ("parameters", "after"),
    [
        (b'{"n_predict":900,"x":1}', b'{"x":1,"max_tokens":256}'),
        (b'{"max_tokens":900,"max_output_tokens":800,"x":1}', b'{"max_tokens":256,"x":1}'),
        (b'{"max_tokens":null,"x":1,"n_predict":800}', b'{"max_tokens":256,"x":1}'),
        (b'{"x":1}', b'{"x":1}'),
    ],
)
def test_one_spelling_of_the_length_leaves(parameters: bytes, after: bytes) -> None:
    head, _ = write(read(body(parameters=parameters)), change(Field.MAX_TOKENS, 800, 256))
    assert head == body(parameters=after)


def test_a_length_tensor_stays_and_the_key_goes() -> None:
    document = read(body(tensor("out_len", "INT32", "[900, 5]"), parameters=b'{"max_tokens":300,"x":1}'), b"")
    head, _ = write(document, change(Field.MAX_TOKENS, 300, 300))
    assert head == body(tensor("out_len", "INT32", "[300, 5]"), parameters=b'{"x":1}')


def test_an_empty_length_tensor_leaves_the_length_to_the_key() -> None:
    document = read(body(tensor("out_len", "INT32", "[]"), parameters=b'{"max_tokens":900}'))
    head, _ = write(document, change(Field.MAX_TOKENS, 900, 256))
    assert head == body(tensor("out_len", "INT32", "[]"), parameters=b'{"max_tokens":256}')


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            b'{"inputs":[{"name":"out_len","datatype":"INT32","data":[99999],"data":[5]}, {"name":"y"}]}',
            b'{"inputs":[{"name":"out_len","datatype":"INT32","data":[5]}, {"name":"y"}]}',
        ),
        (
            b'{"inputs":[{"name":"y","parameters":{"a":1,"a":2}}, {"name":"z"}]}',
            b'{"inputs":[{"name":"y","parameters":{"a":2}}, {"name":"z"}]}',
        ),
        (
            b'{"parameters":{"max_tokens":99999,"max_tokens":5}}',
            b'{"parameters":{"max_tokens":5}}',
        ),
        (b'{"inputs":[{"name":"out_len"}],"inputs":[]}', b'{"inputs":[]}'),
    ],
)
def test_repeated_keys_leave_settled(before: bytes, after: bytes) -> None:
    document = read(before, b"")
    assert write(document) == (after, b"")
    assert document.request.given.get(Field.MAX_TOKENS, 5) == 5


def test_settling_a_size_moves_the_header_not_the_tail() -> None:
    head = b'{"inputs":[{"name":"y","parameters":{"binary_data_size":9,"binary_data_size":2}}]}'
    assert write(read(head, b"\x00\x01")) == (
        b'{"inputs":[{"name":"y","parameters":{"binary_data_size":2}}]}',
        b"\x00\x01",
    )


# tritonclient's own encoder

NUMPY: dict[str, Any] = {
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
}


def encode(inputs: Iterable[tuple[str, str, Any, bool]], **kwargs: Any) -> tuple[bytes, Reading]:
    """A body as tritonclient sends it. Each input is (name, datatype, array, whether it is binary)."""
    encoded = []
    for name, datatype, array, is_binary in inputs:
        each = InferInput(name, list(array.shape), datatype)
        each.set_data_from_numpy(array, binary_data=is_binary)
        encoded.append(each)
    content, size = InferenceServerClient.generate_request_body(encoded, **kwargs)
    return bytes(content), reading() if size is None else reading(b"%d" % size)


def test_a_request_of_tritonclient() -> None:
    content, how = encode(
        [
            ("text_input", "BYTES", np.array([["Где заказ?"]], dtype=object), True),
            ("image", "UINT8", np.arange(12, dtype=np.uint8), True),
            ("out_len", "INT32", np.array([[4096]], dtype=np.int32), True),
            ("temperature", "FP32", np.array([[0.9]], dtype=np.float32), False),
        ],
        priority=3,
        parameters={"max_tokens": 50},
    )
    document = triton_infer.read(content, how)
    assert document.request.text == "Где заказ?"
    assert document.request.given == {
        Field.MAX_TOKENS: 50,
        Field.TEMPERATURE: pytest.approx(0.9),
        Field.PRIORITY: 3,
    }
    head, tail = write(document, change(Field.MAX_TOKENS, 50, 40), change(Field.PRIORITY, 3, 1))
    parameters = json.loads(head)["parameters"]
    assert parameters["priority"] == 1
    assert "max_tokens" not in parameters
    assert tail == content[document.head : -4] + struct.pack("<i", 40)


names = st.sampled_from(["out_len", "temperature", "top_p", "top_k", "beam_width", "text_input"])


@st.composite
def tensors_of_a_request(draw: st.DrawFn) -> list[tuple[str, str, Any, bool]]:
    chosen = draw(st.lists(names | st.text("abc_", min_size=1, max_size=6), unique=True, max_size=8))
    found = []
    for name in chosen:
        datatype = "BYTES" if name == "text_input" else draw(st.sampled_from(sorted(NUMPY)))
        size = draw(st.integers(0, 5))
        if datatype == "BYTES":
            array = np.array(draw(st.lists(st.text(max_size=5), min_size=size, max_size=size)), dtype=object)
        else:
            elements = st.integers(0, 100)
            array = np.array(draw(st.lists(elements, min_size=size, max_size=size)), dtype=NUMPY[datatype])
        found.append((name, datatype, array, datatype == "FP16" or draw(st.booleans())))
    return found


@given(inputs=tensors_of_a_request(), cap=st.integers(0, 100), priority=st.none() | st.integers(1, 3))
@settings(deadline=None, max_examples=300)
def test_what_no_rule_names_keeps_its_bytes(
    inputs: list[tuple[str, str, Any, bool]], cap: int, priority: int | None
) -> None:
    content, how = encode(inputs)
    document = triton_infer.read(content, how)
    changes = [] if priority is None else [change(Field.PRIORITY, ABSENT, priority)]
    for field, before in document.request.given.items():
        if before > cap:  # type: ignore[operator]
            changes.append(change(field, before, cap))
    head, tail = write(document, *changes)
    expected, how = encode(
        [
            (name, kind, np.minimum(array, cap).astype(array.dtype) if _capped(name) else array, is_binary)
            for name, kind, array, is_binary in inputs
        ]
    )
    again = triton_infer.read(expected, how)
    wanted = json.loads(expected[: again.head])
    if priority is not None:
        wanted.setdefault("parameters", {})["priority"] = priority
    assert json.loads(head) == wanted
    assert tail == expected[again.head :]


def _capped(name: str) -> bool:
    return name in ("out_len", "temperature", "top_p", "top_k", "beam_width")


# Anything at all

pieces = st.sampled_from(
    [
        b'"parameters":',
        b'"binary_data_size":',
        b'{"name":"out_len","datatype":"INT32"',
        b'{"name":"text_input","datatype":"BYTES"',
        b'{"name":"top_k","datatype":"BF16"',
        b'"data":',
        b'"inputs":',
        b'"max_tokens":',
        *(bytes([each]) for each in b'{}[],:"-.0149e \\'),
        b"null",
        b"NaN",
        b"\\ud800",
    ]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(width=32) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
odd_inputs = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["out_len", "temperature", "top_k", "text_input", "x"]) | values,
        "datatype": st.sampled_from(["INT8", "INT32", "FP16", "BF16", "FP32", "BYTES", "BOOL"]) | values,
        "data": values,
        "parameters": st.fixed_dictionaries({}, optional={"binary_data_size": st.integers(0, 8) | values}) | values,
    },
)
odd_bodies = st.fixed_dictionaries(
    {"inputs": st.lists(odd_inputs, max_size=3) | values},
    optional={
        "parameters": st.dictionaries(st.sampled_from(["max_tokens", "top_k", "priority", "x"]), values) | values
    },
)
contents = (
    st.binary(max_size=60)
    | st.lists(pieces, max_size=25).map(b"".join)
    | odd_bodies.map(lambda each: json.dumps(each).encode())
)


@given(content=contents, tail=st.binary(max_size=16), lengths=st.lists(st.binary(max_size=4), max_size=2))
@settings(deadline=None, max_examples=1500)
def test_anything_is_a_document_or_400(content: bytes, tail: bytes, lengths: list[bytes]) -> None:
    _document_or_400(content + tail, reading(*lengths))
    _document_or_400(content + tail, reading(b"%d" % len(content)))


def _document_or_400(content: bytes, how: Reading) -> None:
    try:
        document = triton_infer.read(content, how)
    except ClientFault as fault:
        assert fault.status == 400
        return
    given_fields = document.request.given
    changes = [change(field, before, 1) for field, before in given_fields.items()]
    head, tail = write(document, *changes, change(Field.PRIORITY, ABSENT, 2))
    assert len(tail) == len(content) - document.head
    again = triton_infer.read(head + tail, reading(b"%d" % len(head)) if document.framed else reading())
    assert again.request.given.get(Field.MAX_TOKENS, 1) == 1


# Cost


def test_a_thousand_inputs_cost_no_more_each_than_a_hundred() -> None:
    def seconds(count: int) -> float:
        head = body(*(binary(f"t{i}", "FP32", 4) for i in range(count)))
        took = []
        for _ in range(3):
            start = time.perf_counter()
            write(read(head, bytes(4 * count)), change(Field.PRIORITY, ABSENT, 1))
            took.append(time.perf_counter() - start)
        return min(took)

    assert seconds(1_000) < 40 * seconds(100)


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (b"[" + b"{}," * 5_000_000 + b"{}]", "too_many_inputs"),
        (b"[" + b"5," * 8_000_000 + b"5]", "too_many_inputs"),
        (b'[{"name":"text_input","datatype":"BYTES","data":[' + b"[]," * 5_000_000 + b"[]]}]", "too_many_items"),
        (b'[{"name":"out_len","datatype":"INT32","data":[' + b"1," * 8_000_000 + b"1]}]", "too_many_items"),
        (b'[{"name":"out_len","datatype":"INT32","data":[1' + b" " * 16_000_000 + b"]}]", "too_many_items"),
        (b"[" + b",".join([b'{"name":"a","a":1,"a":1}'] * 600_000) + b"]", "too_many_inputs"),
    ],
    ids=["objects", "numbers", "empty_texts", "lengths", "space", "repeated"],
)
def test_a_large_body_is_refused_at_once(array: bytes, reason: str) -> None:
    content = b'{"inputs":' + array + b"}"
    start = time.thread_time()
    with pytest.raises(ClientFault) as caught:
        read(content)
    refused = time.thread_time()
    json.loads(b"[" + b"1," * (len(content) // 2) + b"1]")
    # Less than what reading as many bytes of numbers takes, even in C.
    assert refused - start < time.thread_time() - refused
    assert (caught.value.status, caught.value.reason) == (400, reason)


def test_sampling_parameters_in_a_tensor_are_refused() -> None:
    with pytest.raises(ClientFault) as caught:
        read(body(tensor("sampling_parameters", "BYTES", '["{}"]')))
    assert (caught.value.status, caught.value.reason) == (400, "sampling_parameters")
    assert "request parameters or tensors" in caught.value.message
    assert read(body(tensor("sampling_parameters", "FP32", "[1]"))).request.given == {}


def test_a_large_tail_is_copied_once() -> None:
    import tracemalloc

    size = 16 << 20
    head = body(binary("out_len", "INT32", 4), binary("x", "FP32", size), binary("text_input", "BYTES", 0))
    content = head + struct.pack("<i", 900) + bytes(size)
    tracemalloc.start()
    try:
        document = triton_infer.read(content, reading(b"%d" % len(head)))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
        written = document.write([change(Field.MAX_TOKENS, 900, 256)], Writing(Engine.TRITON, RULES))
        assert tracemalloc.get_traced_memory()[1] < size + (1 << 20)
    finally:
        tracemalloc.stop()
    assert len(written.body) == len(content)

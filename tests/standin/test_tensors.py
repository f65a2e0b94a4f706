from __future__ import annotations

import numpy as np
import pytest
from tritonclient.utils import serialize_byte_tensor

from extproc.errors import ClientFault
from extproc.standin.tensors import Tensor, pack, read_all, scalars, split_strings, unpack


def described(name: str, datatype: str, shape: list[int], **more: object) -> dict[str, object]:
    return {"name": name, "datatype": datatype, "shape": shape, **more}


@pytest.mark.parametrize(
    ("datatype", "dtype", "values"),
    [
        ("BOOL", np.bool_, [True, False]),
        ("UINT8", np.uint8, [0, 255]),
        ("INT16", np.int16, [-1, 300]),
        ("INT32", np.int32, [-1, 2**31 - 1]),
        ("UINT64", np.uint64, [2**64 - 1]),
        ("FP16", np.float16, [0.5, -2.0]),
        ("FP32", np.float32, [0.25, 1e30]),
        ("FP64", np.float64, [0.1]),
    ],
)
def test_the_binary_form_is_numpys(datatype: str, dtype: type, values: list[object]) -> None:
    data = pack(datatype, values)
    assert data == np.array(values, dtype=dtype).tobytes()
    unpacked = unpack(Tensor("t", datatype, [len(values)], data))
    assert unpacked == np.array(values, dtype=dtype).tolist()


def test_strings_are_packed_as_the_client_does() -> None:
    texts = ["", "订单", "a"]
    data = pack("BYTES", texts)
    assert data == serialize_byte_tensor(np.array([t.encode() for t in texts], dtype=np.object_)).item()
    assert split_strings(data) == [t.encode() for t in texts]


def test_json_and_binary_inputs_side_by_side() -> None:
    inputs = [
        described("a", "INT32", [2, 1], data=[[1], [2]]),
        described("b", "FP32", [1], parameters={"binary_data_size": 4}),
        described("c", "BYTES", [1], parameters={"binary_data_size": 6}),
    ]
    a, b, c = read_all(inputs, pack("FP32", [0.5]) + pack("BYTES", ["hi"]))
    assert [unpack(tensor) for tensor in (a, b, c)] == [[1, 2], [0.5], ["hi"]]


BINARY = {"binary_data_size": 4}


@pytest.mark.parametrize(
    ("inputs", "tail"),
    [
        (None, b""),
        (["x"], b""),
        ([described("a", "FP32", [1], parameters=BINARY)], b"123"),
        ([described("a", "FP32", [1], parameters=BINARY)], b"12345"),
        ([described("a", "FP32", [2], parameters=BINARY)], b"1234"),
        ([described("a", "FP32", [1], data=[0.5])], b"1234"),
        ([described("a", "FP32", [1])], b""),
        ([described("a", "BYTES", [1], parameters=BINARY)], b"\x05\x00\x00\x00"),
        ([described("a", "BYTES", [2], parameters=BINARY)], b"\x00\x00\x00\x00"),
        ([described("a", "FP32", [1], parameters={"binary_data_size": -4})], b""),
        ([described("a", "FP32", [-1], data=[0.5])], b""),
        ([described("a", "FP31", [1], data=[0.5])], b""),
        ([described("a", "INT8", [1], data=[300])], b""),
        ([described("a", "INT8", [1], data=["x"])], b""),
        ([described("a", "BF16", [1], data=[1.0])], b""),
        ([{"datatype": "INT8", "shape": [1], "data": [1]}], b""),
    ],
)
def test_what_does_not_add_up_is_refused(inputs: object, tail: bytes) -> None:
    with pytest.raises(ClientFault) as caught:
        read_all(inputs, tail)
    assert caught.value.status == 400


def test_bf16_passes_as_binary_but_has_no_json_form() -> None:
    (tensor,) = read_all([described("a", "BF16", [2], parameters=BINARY)], b"1234")
    assert tensor.data == b"1234"
    with pytest.raises(ClientFault, match="BF16"):
        unpack(tensor)


def test_scalars_are_the_single_numbers_at_their_types_precision() -> None:
    tensors = [
        Tensor("temperature", "FP32", [1], pack("FP32", [0.3])),
        Tensor("max_tokens", "INT32", [1, 1], pack("INT32", [120])),
        Tensor("logits", "FP32", [2], pack("FP32", [1, 2])),
        Tensor("text_input", "BYTES", [1], pack("BYTES", ["secret"])),
    ]
    assert scalars(tensors) == {"temperature": 0.3, "max_tokens": 120}

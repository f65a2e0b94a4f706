"""Which tensors carry a field, and what their elements say."""

from __future__ import annotations

import math

import pytest

from extproc.errors import ClientFault
from extproc.model.names import Field
from extproc.registry import TensorNames
from extproc.request import tensor_fields, tensor_inputs
from extproc.request.tensor_inputs import Input, Span

NAMES = TensorNames(max_tokens="len", temperature="temp", top_p=None, top_k="k", beams="beams", text="prompt")


def inputs(array: bytes, tail: bytes | None = None) -> dict[str, Input]:
    span = None if tail is None else Span(0, len(tail))
    return {tensor.name: tensor for tensor in tensor_inputs.read(array, tail=span, max_keys=10).tensors}


def values(array: bytes, tail: bytes | None = None) -> dict[Field, float | None]:
    found = tensor_fields.find(inputs(array, tail), NAMES, tail or b"")
    return {tensor.field: tensor.value for tensor in found}


def test_fields_are_found_by_the_models_names() -> None:
    array = (
        b'[{"name":"k","datatype":"INT64","data":[-1,-5]},{"name":"top_p","datatype":"FP32","data":[0.9]},'
        b'{"name":"len","datatype":"FP32","data":[[5.0],[7e1]]},{"name":"temp","datatype":"FP64","data":[]}]'
    )
    assert values(array) == {Field.MAX_TOKENS: 70, Field.TEMPERATURE: None, Field.TOP_K: -1}


@pytest.mark.parametrize(
    ("name", "datatype", "data", "value"),
    [
        ("len", "FP64", "1e20", 1e20),
        ("len", "INT8", "0", 0),
        ("temp", "INT8", "1, 0", 1),
        ("temp", "FP16", "0.5, 1.0", 1),
        ("k", "FP32", "1e400, 2.5", 2.5),
        ("k", "FP32", "1e400", None),
        ("beams", "UINT8", "4.0, 3", 4),
    ],
)
def test_the_largest_element_counts(name: str, datatype: str, data: str, value: float | None) -> None:
    (found,) = values(f'[{{"name":"{name}","datatype":"{datatype}","data":[{data}]}}]'.encode()).values()
    assert found == value
    assert found is None or isinstance(found, int) == (found < 1e15 and found == math.floor(found))


@pytest.mark.parametrize(
    "array",
    [
        b'[{"name":"len","datatype":"BYTES","data":["5"]}]',
        b'[{"name":"len","datatype":"INT32","data":[-1]}]',
        b'[{"name":"len","datatype":"FP32","data":[1.5]}]',
        b'[{"name":"len","datatype":"INT32"}]',
        b'[{"name":"len","data":[5]}]',
        b'[{"name":"len","datatype":"INT32","data":["SECRET"]}]',
        b'[{"name":"len","datatype":"INT32","parameters":{"shared_memory_region":"SECRET"}}]',
    ],
)
def test_a_length_that_cannot_be_judged_is_400(array: bytes) -> None:
    with pytest.raises(ClientFault) as caught:
        values(array)
    assert (caught.value.status, caught.value.param) == (400, "len")
    assert "SECRET" not in caught.value.message


def test_a_sampling_tensor_without_numbers_is_not_found() -> None:
    assert values(b'[{"name":"temp","datatype":"BYTES","data":["0.9"]},{"name":"k"}]') == {}


@pytest.mark.parametrize(
    ("array", "tail", "text"),
    [
        (b'[{"name":"prompt","datatype":"BYTES","data":["a",["b"]]}]', None, "a\nb"),
        (
            b'[{"name":"prompt","datatype":"BYTES","parameters":{"binary_data_size":5}}]',
            b"\1\0\0\0a",
            "a",
        ),
        (b'[{"name":"prompt","datatype":"BYTES","parameters":{"binary_data_size":0}}]', b"", ""),
        (b'[{"name":"prompt","datatype":"BYTES","parameters":{"shared_memory_region":"r"}}]', None, ""),
        (b'[{"name":"prompt","datatype":"INT32","data":[1,2]}]', None, ""),
        (b"[]", None, ""),
    ],
)
def test_prompt(array: bytes, tail: bytes | None, text: str) -> None:
    assert tensor_fields.prompt(inputs(array, tail).get("prompt"), tail or b"", 100) == text


def test_a_prompt_whose_lengths_do_not_fit_is_400() -> None:
    array = b'[{"name":"prompt","datatype":"BYTES","parameters":{"binary_data_size":5}}]'
    with pytest.raises(ClientFault) as caught:
        tensor_fields.prompt(inputs(array, b"\2\0\0\0a")["prompt"], b"\2\0\0\0a", 100)
    assert (caught.value.status, caught.value.param) == (400, "prompt")


def test_items_are_counted_before_they_are_read() -> None:
    for name, datatype in (("len", "INT32"), ("prompt", "BYTES")):
        array = f'[{{"name":"{name}","datatype":"{datatype}","data":[{"[]," * 400_000}[]]}}]'.encode()
        found = inputs(array)
        with pytest.raises(ClientFault) as caught:
            tensor_fields.find(found, NAMES, b"")
            tensor_fields.prompt(found.get("prompt"), b"", 100)
        assert (caught.value.status, caught.value.reason) == (400, "too_many_items")


def test_keys_are_the_names_the_model_has() -> None:
    assert tensor_fields.keys(NAMES) == {
        "len": Field.MAX_TOKENS,
        "temp": Field.TEMPERATURE,
        "k": Field.TOP_K,
        "beams": Field.BEAMS,
    }

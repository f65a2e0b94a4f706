"""The `inputs` array: where each object stands, what of the tail is whose, what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.errors import ClientFault
from extproc.request import tensor_inputs
from extproc.request.tensor_inputs import Inputs, Span

SECRET = "SECRET"


def read(array: bytes | None, tail: Span | None = None) -> Inputs:
    return tensor_inputs.read(array, tail=tail, max_keys=20)


def test_objects_keep_their_place() -> None:
    array = b' [ {"name":"a"} ,\n{ "name" : "\\u0062", "datatype":"FP32","data":[1]}\t] '
    inputs = read(array)
    assert [tensor.name for tensor in inputs.tensors] == ["a", "b"]
    assert [array[t.place.start : t.place.end] for t in inputs.tensors] == [
        b'{"name":"a"}',
        b'{ "name" : "\\u0062", "datatype":"FP32","data":[1]}',
    ]
    assert inputs.tensors[1].datatype == "FP32"
    assert inputs.tensors[1].data == b"[1]"
    assert inputs.tensors[0].data is None
    assert inputs.edited({}) is None
    assert inputs.edited({"b": b"[2]"}) == array.replace(b"[1]", b"[2]")


@pytest.mark.parametrize("array", [None, b"[]", b" [ ] "])
def test_no_inputs(array: bytes | None) -> None:
    assert read(array).tensors == ()
    assert read(array).edited({}) is None


def test_the_tail_is_dealt_out_in_order() -> None:
    inputs = read(
        b'[{"name":"a","parameters":{"binary_data_size":3}},{"name":"b","data":[1]},'
        b'{"name":"c","parameters":{"binary_data_size":0}},{"name":"d","parameters":{"binary_data_size":4}}]',
        Span(100, 107),
    )
    spans = [tensor.tail for tensor in inputs.tensors]
    assert spans == [Span(100, 103), None, Span(103, 103), Span(103, 107)]


@pytest.mark.parametrize(
    ("array", "settled"),
    [
        (b'[{"name":"x"}, {"name":"a","data":[9],"data":[1]}]', b'[{"name":"x"}, {"name":"a","data":[1]}]'),
        (b'[{"name":"a","data":[9],"d\\u0061ta":[1]}]', b'[{"name":"a","data":[1]}]'),
        (
            b'[{"name":"a", "parameters":{"k":1,"k":2}}]',
            b'[{"name":"a", "parameters":{"k":2}}]',
        ),
        (
            b'[{"name":"a","parameters":{"k":1,"k":2},"parameters":{"z":1,"z":3}}]',
            b'[{"name":"a","parameters":{"z":3}}]',
        ),
    ],
)
def test_a_repeated_key_leaves_settled(array: bytes, settled: bytes) -> None:
    assert read(array).edited({}) == settled


def test_colons_in_values_are_no_repeated_keys() -> None:
    assert read(b'[{"name":"a:b","x":{"y":{"z":"::"}},"parameters":{"t":":"}}]').edited({}) is None


@pytest.mark.parametrize(
    "array",
    [
        b"{}",
        b"null",
        b'"SECRET"',
        b"[1]",
        b'["SECRET"]',
        b"[null]",
        b'[{"data":["SECRET"]}]',
        b'[{"name":null,"x":"SECRET"}]',
        b'[{"name":7}]',
        b'[{"name":"SECRET"},{"name":"SECRET"}]',
        b'[{"name":"SECRET"},{"name":"\\u0053ECRET"}]',
        b'[{"name":"a","parameters":[]}]',
        b'[{"name":"a","parameters":null}]',
        b'[{"name":"a","data":["SECRET"],"parameters":{"binary_data_size":7}}]',
        b'[{"name":"a","data":["SECRET"],"parameters":{"shared_memory_region":"r"}}]',
        b'[{"name":"a","parameters":{"shared_memory_region":"r","binary_data_size":7}}]',
        *(
            b'[{"name":"a","parameters":{"binary_data_size":%s}}]' % size
            for size in (b"-7", b"7.0", b"7e0", b'"7"', b"null", b"true", b"[7]", b"6", b"8", b"9" * 5000)
        ),
        b'[{"name":"a"}]',
    ],
)
def test_what_cannot_be_dealt_out_is_400(array: bytes) -> None:
    with pytest.raises(ClientFault) as caught:
        read(array, Span(0, 7))
    assert caught.value.status == 400
    assert caught.value.reason == "invalid_tensors"
    assert SECRET not in caught.value.message


@pytest.mark.parametrize("array", [b'[{"name":"a",%s}]', b'[{"name":"a","parameters":{%s}}]'])
def test_keys_are_bounded_in_number(array: bytes) -> None:
    def keys(count: int) -> bytes:
        return array % b",".join(b'"k%d":1' % i for i in range(count))

    assert len(read(keys(19)).tensors) == 1
    with pytest.raises(ClientFault) as caught:
        read(keys(21))
    assert (caught.value.status, caught.value.reason) == (400, "too_many_keys")


def test_a_size_without_a_header_length_is_400() -> None:
    with pytest.raises(ClientFault, match="no header length"):
        read(b'[{"name":"a","parameters":{"binary_data_size":0}}]')


space = st.text(" \t\n\r", max_size=3).map(str.encode)


@given(st.lists(st.tuples(space, st.integers(0, 99), space), max_size=6), st.sets(st.integers(0, 5)))
@settings(deadline=None)
def test_an_edit_changes_the_named_data_alone(parts: list[tuple[bytes, int, bytes]], chosen: set[int]) -> None:
    def array(data: list[int]) -> bytes:
        objects = (
            before + b'{"name":%s"t%d","data":%d, "x":[{}]}' % (after, i, value) + after
            for i, ((before, _, after), value) in enumerate(zip(parts, data, strict=True))
        )
        return b"[" + b",".join(objects) + b"]"

    old = [value for _, value, _ in parts]
    new = [777 if i in chosen else value for i, value in enumerate(old)]
    edits = {f"t{i}": b"777" for i in chosen}
    edited = read(array(old)).edited(edits)
    assert (array(old) if edited is None else edited) == array(new)


@pytest.mark.parametrize("padding", [b"", b" " * (1 << 17)], ids=["small", "large"])
def test_the_number_of_inputs_is_bounded(padding: bytes) -> None:
    each = [b'{"name":"%d"}' % index for index in range(tensor_inputs.MAX_INPUTS + 1)]
    array = b"[" + padding + b" ,".join(each[:-1]) + b"]"
    inputs = read(array)
    assert [array[t.place.start : t.place.end] for t in inputs.tensors] == each[:-1]
    with pytest.raises(ClientFault) as caught:
        read(b"[" + padding + b",".join(each) + b"]")
    assert (caught.value.status, caught.value.reason, caught.value.param) == (400, "too_many_inputs", "inputs")
    assert "1024" in caught.value.message


def test_the_keys_of_one_input_are_bounded() -> None:
    keys = b",".join(b'"k%d":1' % index for index in range(tensor_inputs.MAX_INPUT_KEYS))
    for array in (b'[{"name":"a",%b}]' % keys, b'[{"name":"a","parameters":{"x":1,%b}}]' % keys):
        with pytest.raises(ClientFault) as caught:
            tensor_inputs.read(array, tail=None, max_keys=4096)
        assert caught.value.reason == "too_many_keys"

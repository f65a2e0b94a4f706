"""The intent model's file comes back as it was, and a wrong one is refused before a request meets it."""

from __future__ import annotations

import hashlib
import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from extproc.model.names import Tier
from extproc.request.classify.weights import MAX_FILE_BYTES, Label, Reader, decode, encode, groups
from tests.request.classify.models import LABELS, small

FILE = encode(small())


def test_a_file_is_the_same_for_the_same_weights_and_comes_back() -> None:
    assert encode(small()) == FILE
    again = decode(FILE)
    assert again.digest == hashlib.sha256(FILE).hexdigest()
    assert (again.labels, again.scale, again.temperatures, again.leans) == (LABELS, 0.02, (1.0, 1.0), (0.0, 0.0))
    assert again.about == {"date": "2024-01-01"}
    for text in ("a refund", "退款", "poem about the weather"):
        assert Reader(again).probabilities(text) == Reader(small()).probabilities(text)


def test_any_numpy_reads_it() -> None:
    with np.load(io.BytesIO(FILE), allow_pickle=False) as archive:
        assert archive["table"].dtype == np.int8


@pytest.mark.parametrize(
    "changes",
    [
        {"table": np.zeros((7, 3), np.int8)},
        {"table": np.zeros((1 << 12, 3), np.float32)},
        {"bias": np.full(3, np.nan, np.float32)},
        {"layer": np.zeros((3, 2), np.float32)},
        {"offset": np.full(3, np.inf, np.float32)},
        {"scale": 0.0},
        {"temperatures": (0.0, 1.0)},
        {"leans": (float("inf"), 0.0)},
        {"labels": (LABELS[0], LABELS[1], replace(LABELS[2], tier=Tier.STRICT, scenario="returns"))},
    ],
)
def test_weights_that_do_not_fit_together(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        decode(encode(small(**changes)))


@pytest.mark.parametrize("data", [b"", b"x", b"PK\x03\x04", FILE[:-100], FILE[:5000], b"\x93NUMPY" + bytes(100)])
def test_what_is_no_model(data: bytes) -> None:
    with pytest.raises(ValueError, match="no intent model") as error:
        decode(data)
    assert "\n" not in str(error.value)


def test_a_file_too_large_is_not_read() -> None:
    with pytest.raises(ValueError, match="larger"):
        decode(bytes(MAX_FILE_BYTES + 1))


@given(st.integers(0, len(FILE) - 1), st.integers(1, 255))
def test_a_flipped_byte_is_refused_or_harmless(at: int, by: int) -> None:
    data = bytearray(FILE)
    data[at] ^= by
    try:
        weights = decode(bytes(data))
    except ValueError:
        return
    assert Reader(weights).probabilities("refund") is not None


def test_temperature_and_lean() -> None:
    strict = [
        Reader(small(**each)).probabilities("refund weather")[0]
        for each in ({}, {"leans": (1.0, 0.0)}, {"temperatures": (9.0, 1.0)})
    ]  # type: ignore[index]
    assert strict[1] > strict[0] > strict[2] > 1 / 3 - 0.2


def test_groups_stand_in_a_row() -> None:
    more = (LABELS[0], Label("b:refund", "returns", Tier.STRICT), *LABELS[1:])
    assert [(each.scenario, each.first) for each in groups(more)] == [
        ("returns", 0),
        ("general", 2),
        ("copywriting", 3),
    ]
    with pytest.raises(ValueError, match="sorted"):
        groups((*LABELS, LABELS[0]))

"""Length buckets."""

from __future__ import annotations

import pytest

from extproc.model.lengths import BOUNDS_BYTES, NAMES, length_bucket


@pytest.mark.parametrize(
    ("size", "name"), [(0, "512"), (512, "512"), (513, "2048"), (32768, "32768"), (32769, "+Inf"), (10**9, "+Inf")]
)
def test_the_bucket_is_named_by_its_upper_bound(size: int, name: str) -> None:
    assert length_bucket(size) == name


def test_as_many_names_as_buckets() -> None:
    assert [*map(str, BOUNDS_BYTES), "+Inf"] == list(NAMES)

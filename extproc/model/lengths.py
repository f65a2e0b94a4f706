"""How long requests are, in few steps: latencies of long and short ones are never compared with each other."""

from __future__ import annotations

from bisect import bisect_left

BOUNDS_BYTES = (512, 2048, 8192, 32768)
"""Of a request's body, inclusive. A byte is about a quarter of an English token."""

NAMES = ("512", "2048", "8192", "32768", "+Inf")


def length_bucket(size: int) -> str:
    """The name of the bucket that a body of `size` bytes falls into: its upper bound."""
    return NAMES[bisect_left(BOUNDS_BYTES, size)]

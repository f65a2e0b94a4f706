"""Events keep what Envoy said, byte by byte."""

from __future__ import annotations

from typing import get_args

import pytest

from extproc.model.events import (
    EmptyReceived,
    Event,
    RequestBodyReceived,
    RequestHeadersReceived,
    RequestTrailersReceived,
    ResponseReceived,
)


def test_headers_keep_order_duplicates_and_bytes() -> None:
    pairs = (("x-b", b"\xff"), ("x-a", b""), ("x-b", b"2"))
    event = RequestHeadersReceived(pairs, True, {})
    assert event.headers == pairs
    assert event.body_mode == ""


@pytest.mark.parametrize(
    "event",
    [
        RequestHeadersReceived((), False, {}),
        RequestBodyReceived(b"", True),
        RequestTrailersReceived(),
        ResponseReceived("response_headers"),
        EmptyReceived(),
    ],
)
def test_values(event: Event) -> None:
    assert type(event) in get_args(Event)
    assert event == type(event)(*(getattr(event, name) for name in event.__struct_fields__))
    with pytest.raises(AttributeError):
        event.phase = "x"  # type: ignore[union-attr]

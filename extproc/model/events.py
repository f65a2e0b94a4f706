"""What Envoy tells us on one ext_proc stream, in the past tense."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class RequestHeadersReceived(Struct, frozen=True):
    """`headers` in the order sent, names lower-case, values as raw bytes; duplicates stay.

    `attributes` are the CEL attributes Envoy was asked for, by name. `body_mode` is Envoy's name of the
    configured request body mode, "" where Envoy did not say.
    """

    headers: tuple[tuple[str, bytes], ...]
    end_of_stream: bool
    attributes: Mapping[str, str]
    body_mode: str = ""


class RequestBodyReceived(Struct, frozen=True):
    body: bytes
    end_of_stream: bool


class RequestTrailersReceived(Struct, frozen=True):
    pass


class ResponseReceived(Struct, frozen=True):
    """A response-phase message: never asked for, answered so that a foreign filter config still works."""

    phase: str


class EmptyReceived(Struct, frozen=True):
    """A message without any request in it."""


Event = RequestHeadersReceived | RequestBodyReceived | RequestTrailersReceived | ResponseReceived | EmptyReceived

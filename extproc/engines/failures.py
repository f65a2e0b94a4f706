"""Why an endpoint could not be read: one closed vocabulary for metrics, tables and logs."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Cause(StrEnum):
    """What stood between us and a sample."""

    TIMEOUT = "timeout"
    NAME = "name"
    """The host name is not known."""
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    RESET = "reset"
    TLS = "tls"
    REDIRECT = "redirect"
    """Refused: whoever can answer for an engine could send the scraper anywhere."""
    STATUS = "status"
    TOO_LARGE = "too_large"
    ENCODING = "encoding"
    PROTOCOL = "protocol"
    NOT_METRICS = "not_metrics"
    TOO_MANY_SERIES = "too_many_series"
    QUERY = "query"
    """The monitoring server did not take the query."""
    NOT_SERVING = "not_serving"
    INTERNAL = "internal"
    """A bug of ours."""


class Failure(Struct, frozen=True):
    """A look that gave nothing. `detail` is one short line for people, never content of a page."""

    cause: Cause
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.cause}: {self.detail}" if self.detail else self.cause.value

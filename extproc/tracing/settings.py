"""The config's block about spans."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from extproc.model.config import Config


def _endpoint(text: str) -> str:
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018  # out of range raises
    except ValueError:
        parts = urlsplit("")
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or "@" in parts.netloc
        or not parts.path.strip("/")
    ):
        raise ValueError("allowed: http(s)://HOST:PORT/v1/traces, without a user")
    return text


class TracingConfig(Config):
    """`batch`, `max_pending` in spans."""

    enabled: bool
    endpoint: Annotated[str, AfterValidator(_endpoint)]
    root_share: Annotated[float, Field(ge=0, le=1)]
    batch: Annotated[int, Field(ge=1, le=8192)]
    max_pending: Annotated[int, Field(ge=1, le=1_000_000)]
    interval_s: Annotated[float, Field(gt=0, le=60)]
    timeout_s: Annotated[float, Field(gt=0, le=60)]
    service_name: Annotated[str, Field(min_length=1, max_length=100)]

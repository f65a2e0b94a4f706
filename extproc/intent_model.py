"""The file of the intent model: the shipped one, or a user's own."""

from __future__ import annotations

import hashlib
from importlib import resources
from pathlib import Path

from extproc.errors import ConfigError, Problem
from extproc.request.classify.settings import IntentConfig
from extproc.request.classify.weights import MAX_FILE_BYTES, Weights, decode

SHIPPED = "intent.npz"

KEPT = 2
"""Models that are held decoded: the one in force, and the one a reload puts in its place."""

_held: dict[str, Weights] = {}


def read(config: IntentConfig) -> Weights | None:
    """None where it is switched off. ConfigError where the file cannot be read, is no model, or not the one that
    the config says."""
    if not config.enabled:
        return None
    try:
        data = data_of(config)
    except OSError as error:
        raise ConfigError((Problem("intent.model", f"{config.model}: {error.strerror or error}"),)) from None
    digest = hashlib.sha256(data).hexdigest()
    if config.sha256 not in ("", digest):
        raise ConfigError((Problem("intent.sha256", f"the file's is {digest}"),))
    try:
        return _decoded(digest, data)
    except ValueError as error:
        raise ConfigError((Problem("intent.model", f"{config.model or SHIPPED}: {error}"),)) from None


def data_of(config: IntentConfig) -> bytes:
    """At most one byte more than a model may have."""
    if not config.model:
        return shipped()
    with Path(config.model).open("rb") as file:
        return file.read(MAX_FILE_BYTES + 1)


def shipped() -> bytes:
    return resources.files("extproc").joinpath(SHIPPED).read_bytes()


def _decoded(digest: str, data: bytes) -> Weights:
    """By its digest alone: the bytes of the file are not worth keeping."""
    found = _held.pop(digest, None) or decode(data)
    _held[digest] = found
    while len(_held) > KEPT:
        del _held[next(iter(_held))]
    return found

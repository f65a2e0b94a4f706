"""The immutable world view that one request is judged by. A request keeps the snapshot it started with."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from extproc.model.protection import CALM, Protection
from extproc.model.values import Caller, Classification
from extproc.parameters import ParameterSet
from extproc.protect.settings import DegradeConfig, FallbackConfig
from extproc.registry import Registry
from extproc.trust import Tenants, Trust


class HasText(Protocol):
    """A request as classifiers see it: the user's text, bounded; it never leaves the process."""

    @property
    def text(self) -> str: ...


class Classifier(Protocol):
    """One way to tell what a request is about; None = no opinion."""

    def __call__(self, request: HasText, caller: Caller) -> Classification | None: ...


MAX_REMEMBERED = 4096


class Memory:
    """What follows from equal inputs under one snapshot. Bounded: a full one starts over."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] = {}

    def get(self, key: Hashable) -> Any:
        return self._known.get(key)

    def remember(self, key: Hashable, value: object) -> None:
        if len(self._known) >= MAX_REMEMBERED:
            self._known.clear()
        self._known[key] = value


class Limits(Struct, frozen=True):
    """`max_body_bytes`: larger bodies are 413. `max_keys`: top-level keys of a body that are still read."""

    max_body_bytes: int
    max_keys: int


class Snapshot(Struct, frozen=True):
    """`generation` counts published snapshots of this process; `parameter_set` is `name@version`.

    `safe` are the parameters while dynamic ones are off, `safe_set` is their `name@version`.
    """

    generation: int
    parameter_set: str
    parameters: ParameterSet
    registry: Registry
    trust: Trust
    tenants: Tenants
    classifiers: tuple[Classifier, ...]
    limits: Limits
    lowest_latency_paths: tuple[str, ...]
    encoded_bodies_pass: bool
    safe: ParameterSet
    safe_set: str
    degrade: DegradeConfig
    fallback: FallbackConfig
    protection: Protection = CALM
    memory: Memory = field(default_factory=Memory)


def protected(snapshot: Snapshot, protection: Protection, generation: int) -> Snapshot:
    """The same under another generation, with what the protection loop says; no decision is remembered."""
    return replace(snapshot, generation=generation, protection=protection, memory=Memory())

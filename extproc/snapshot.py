"""The immutable world view that one request is judged by. A request keeps the snapshot it started with."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from extproc.model.values import Caller, Classification, InferenceRequest
from extproc.parameters import ParameterSet
from extproc.registry import Registry
from extproc.trust import Tenants, Trust


class Classifier(Protocol):
    """One way to tell what a request is about; None = no opinion."""

    def __call__(self, request: InferenceRequest, caller: Caller) -> Classification | None: ...


class Limits(Struct, frozen=True):
    """`max_body_bytes`: larger bodies are 413. `max_keys`: top-level keys of a body that are still read."""

    max_body_bytes: int
    max_keys: int


class Snapshot(Struct, frozen=True):
    """`generation` counts published snapshots of this process; `parameter_set` is `name@version`."""

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

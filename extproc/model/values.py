"""What is read from a request and what is decided about it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Literal

from msgspec import Struct

from extproc.model.names import Dialect, Engine, Family, Field, RequestClass, Tier


class Missing(Enum):
    """Absent from the request, or removed by a rule: a value of its own, never None or 0."""

    ABSENT = "absent"


ABSENT: Literal[Missing.ABSENT] = Missing.ABSENT

Scalar = int | float | bool | str
Value = Scalar | Literal[Missing.ABSENT]


class Target(Struct, frozen=True):
    """What a path asks for.

    `dialect` is None for paths that pass untouched; `model` is the name in the path (Triton), else None.
    """

    family: Family
    dialect: Dialect | None
    model: str | None = None


class InferenceRequest(Struct, frozen=True):
    """What a dialect read from one body.

    `given` holds the rule-named parameters the client set (absent ones are absent keys); several spellings
    of the output length are already reduced to the smallest valid one, `length_keys` lists all of them.
    `unlimited_length` is set where the client asked for no limit (llama.cpp's -1). `insertable` are the fields
    that can be added to this body; fields in `given` can always be changed. `text` is what classifiers read,
    bounded, and never leaves the process.
    """

    dialect: Dialect
    model: str
    text: str
    given: Mapping[Field, Scalar]
    insertable: frozenset[Field]
    length_keys: tuple[str, ...] = ()
    unlimited_length: bool = False
    stream: bool = False


class Classification(Struct, frozen=True):
    """A classifier's verdict. `source` names the classifier, `rule` what in it matched; confidence in [0, 1]."""

    tier: Tier
    scenario: str
    source: str
    rule: str
    confidence: float


class Caller(Struct, frozen=True):
    """Who sent the request. `overrides` holds what a trusted caller set by header."""

    trusted: bool
    trust_reason: str
    tenant: str
    label: str | None
    request_class: RequestClass | None
    overrides: Mapping[Field, Scalar]


class Change(Struct, frozen=True):
    """One field changed by one rule, and why, in words an operator can read."""

    field: Field
    before: Value
    after: Value
    rule: str
    reason: str


class Decision(Struct, frozen=True):
    """Everything decided about one request. `changes` has at most one entry per field.

    `max_tokens` is the granted output length in tokens, None where none was set.
    """

    tier: Tier
    scenario: str
    confidence: float
    source: str
    rule: str
    request_class: RequestClass
    tenant: str
    engine: Engine
    pool: str | None
    parameter_set: str
    profile: str
    max_tokens: int | None
    continuation: bool
    changes: tuple[Change, ...]
    fallback: str = ""
    """Why it goes to a light pool; "" = it does not."""
    probe: bool = False
    """It tries out what is half open."""
    model: str | None = None
    """As the client names it."""


class AuditRecord(Struct, frozen=True, rename={"from_": "from"}):
    """One changed field of one request; never any text of it. `ts` is seconds since the epoch."""

    ts: float
    request_id: str
    tenant: str
    dialect: str
    field: str
    from_: Scalar | None
    to: Scalar | None
    rule: str
    reason: str
    tier: str
    scenario: str
    confidence: float
    parameter_set: str

"""Values are frozen, and absence is a value of its own."""

from __future__ import annotations

import pickle

import msgspec
import pytest

from extproc.model.names import Dialect, Family, Field
from extproc.model.values import ABSENT, AuditRecord, Change, InferenceRequest, Missing, Target

RECORD = AuditRecord(
    ts=1.5,
    request_id="r",
    tenant="t",
    dialect="openai_chat",
    field="temperature",
    from_=None,
    to=0.3,
    rule="tier.strict",
    reason="why",
    tier="strict",
    scenario="order_query",
    confidence=1.0,
    parameter_set="default@0",
)


def test_absence_is_neither_none_nor_zero() -> None:
    assert ABSENT is Missing.ABSENT
    assert ABSENT not in (None, 0, False, "")
    assert pickle.loads(pickle.dumps(ABSENT)) is ABSENT


def test_an_audit_record_spells_from() -> None:
    line = msgspec.json.encode(RECORD)
    assert line == (
        b'{"ts":1.5,"request_id":"r","tenant":"t","dialect":"openai_chat","field":"temperature","from":null,"to":0.3,'
        b'"rule":"tier.strict","reason":"why","tier":"strict","scenario":"order_query","confidence":1.0,'
        b'"parameter_set":"default@0"}'
    )
    assert msgspec.json.decode(line, type=AuditRecord) == RECORD


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (RECORD, "to"),
        (Target(Family.OPENAI, None), "family"),
        (Change(Field.TOP_P, ABSENT, 1.0, "r", "w"), "after"),
        (InferenceRequest(Dialect.OPENAI_CHAT, "m", "", {}, frozenset()), "model"),
    ],
)
def test_frozen(value: object, name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(value, name, None)


def test_a_request_says_nothing_it_was_not_told() -> None:
    request = InferenceRequest(Dialect.OPENAI_CHAT, "m", "", {}, frozenset())
    assert (request.length_keys, request.unlimited_length, request.stream) == ((), False, False)

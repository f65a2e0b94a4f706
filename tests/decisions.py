"""Decided requests as the exchange records them."""

from __future__ import annotations

from extproc.model.commands import RecordDecision
from extproc.model.names import Dialect, Engine, Family, Field, RequestClass, Tier
from extproc.model.values import ABSENT, Change, Decision, Target


def decided(
    *changes: tuple[Field, str],
    tier: Tier = Tier.STRICT,
    max_tokens: int | None = 256,
    dialect: Dialect | None = Dialect.OPENAI_CHAT,
) -> RecordDecision:
    """`changes`: which fields, each by which rule."""
    decision = Decision(
        tier=tier,
        scenario="order",
        confidence=0.9,
        source="rules",
        rule="order",
        request_class=RequestClass.BEST_EFFORT,
        tenant="anonymous",
        engine=Engine.VLLM,
        pool=None,
        parameter_set="default@0123456789ab",
        profile="default",
        max_tokens=max_tokens,
        continuation=False,
        changes=tuple(Change(field, ABSENT, 1, rule, "why") for field, rule in changes),
    )
    return RecordDecision(Target(Family.OPENAI, dialect), decision, ())

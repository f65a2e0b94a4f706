"""Output length in tokens."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from extproc.decide.context import GENERATES, Context, Values, change
from extproc.model.names import Field
from extproc.model.values import Change


class Limit(Struct, frozen=True):
    """`tokens` at most, by `rule`."""

    tokens: int
    rule: str
    reason: str


def grant(context: Context, values: Values) -> Iterable[Change]:
    if context.request.dialect not in GENERATES:
        return
    asked = values.get(Field.MAX_TOKENS)
    granted = granted_tokens(context, None if asked is None else int(asked))
    if granted is None:
        return
    least = values.get(Field.MIN_TOKENS)
    if isinstance(least, int) and least > granted.tokens:
        yield change(values, Field.MIN_TOKENS, granted.tokens, "length.min_tokens", "not above the granted length")
    if granted.tokens != asked:
        yield change(values, Field.MAX_TOKENS, granted.tokens, granted.rule, granted.reason)
    elif context.respell_length:
        yield change(values, Field.MAX_TOKENS, asked, "length.spelling", "one key, as the engine reads it")


def granted_tokens(context: Context, asked: int | None) -> Limit | None:
    """The granted length; None where the request stays without one.

    min(asked or limit, limit, cap), never below the engine's minimum, and nothing lifts it over the cap.
    """
    wanted = context.caller.overrides.get(Field.MAX_TOKENS)
    if wanted is not None:
        return _bounded(context, Limit(int(wanted), "override", "set by a trusted caller"))
    return _degraded(context, _granted(context, asked))


def _degraded(context: Context, granted: Limit | None) -> Limit | None:
    """Under load answers are shorter; never longer than they would have been."""
    if context.degrade is None or (granted is not None and granted.tokens <= context.degrade.max_tokens):
        return granted
    return _bounded(context, Limit(context.degrade.max_tokens, "degrade.max_tokens", "the pool is loaded"))


def _granted(context: Context, asked: int | None) -> Limit | None:
    cap = context.profile.length_cap
    limit = scenario_limit(context)
    # A whitelisted request keeps the engine's own default, as long as that stays under the cap.
    if limit.rule == "length.cap" and asked is None and not _engine_exceeds(context, cap):
        return None
    if asked is not None and asked <= limit.tokens:
        return _bounded(context, Limit(asked, "length.asked", "as asked"))
    return _bounded(context, limit)


def scenario_limit(context: Context) -> Limit:
    """The cap for whitelisted scenarios, else the scenario's length, learnt or configured, else the default."""
    rules = context.parameters.inference_params.max_tokens
    name = context.classification.scenario
    if name in rules.whitelist:
        return _cap(context)
    learnt = context.lengths.get(name)
    if learnt is not None:
        return Limit(learnt, "length.learnt", f"answers to {name} were seen to need {learnt} tokens")
    scenario = context.parameters.scenarios.get(name)
    if scenario is not None and scenario.length is not None:
        return Limit(scenario.length, "length.scenario", f"answers to {name} need {scenario.length} tokens")
    return Limit(rules.default, "length.default", f"the default is {rules.default} tokens")


def _bounded(context: Context, limit: Limit) -> Limit:
    cap = _cap(context)
    least = _engine_minimum(context)
    if limit.tokens > cap.tokens:
        return cap
    if limit.tokens < least <= cap.tokens:
        return Limit(least, "length.engine_minimum", f"{context.engine} needs at least {least} tokens")
    return limit


def _cap(context: Context) -> Limit:
    tokens = context.profile.length_cap
    return Limit(tokens, "length.cap", f"model profile {context.profile.name} allows {tokens} tokens")


def _engine_minimum(context: Context) -> int:
    own = context.profile.min_output_tokens
    return context.engine_rules.min_output_tokens if own is None else own


def _engine_exceeds(context: Context, cap: int) -> bool:
    """Whether the engine left alone would generate more than `cap`; unlimited where nothing says less."""
    if context.request.unlimited_length:
        return True
    own = context.profile.default_output_tokens
    default = context.engine_rules.default_output_tokens.get(context.request.dialect) if own is None else own
    return default is None or default > cap

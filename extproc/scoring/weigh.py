"""From the readings of a pool's endpoints to integer weights, each with its reason.

The sum of all shares is fixed, and unhealthy endpoints take no part in it: a share is a share of the traffic,
comparable from tick to tick. Without that, the step of a tick and the least change would mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from extproc.scoring.score import Score, score
from extproc.scoring.shares import apportion, carried, step, total_of
from extproc.scoring.values import EndpointInput, EndpointWeight, PoolWeights, ScoringRules, WeightReason


class _Split(Struct, frozen=True):
    """Shares of the healthy endpoints. `reasons`: one each, None = the score's own."""

    shares: list[int]
    reasons: list[WeightReason | None]
    saturated: bool = False


def weigh(
    inputs: Sequence[EndpointInput], previous: Mapping[str, int], rules: ScoringRules, *, now: float
) -> PoolWeights:
    """Shares of one pool. `previous`: the last result's `shares`, {} at first; `now` in monotonic seconds."""
    healthy = [each for each in inputs if each.healthy]
    if not healthy:
        return _published(inputs, iter(()), 0, previous, saturated=False)
    total = total_of(len(inputs))
    keys = [each.key for each in healthy]
    scores = score(healthy, rules, now=now)
    split = _split(scores, carried(previous, keys, total), total, rules)
    split = _held(split, [previous.get(key) for key in keys], rules)
    if len(inputs) == 1:
        split = _Split(split.shares, [WeightReason.ALONE], saturated=split.saturated)
    weights = map(_weight, keys, scores, split.shares, split.reasons)
    return _published(inputs, weights, total, previous, saturated=split.saturated)


def _split(scores: Sequence[Score], before: list[int] | None, total: int, rules: ScoringRules) -> _Split:
    if not any(each.fresh for each in scores):
        reason = WeightReason.EQUAL if before is None else WeightReason.LAST_GOOD
        return _Split(before or _equal(scores, total), [reason] * len(scores))
    saturated = not any(each.value for each in scores)
    target = _equal(scores, total) if saturated else apportion([each.value for each in scores], total)
    shares = target if before is None else step(before, target, rules.max_step * total)
    if saturated:
        return _Split(shares, [WeightReason.SATURATED] * len(scores), saturated=True)
    stepped = [WeightReason.STEPPED if a != b else None for a, b in zip(shares, target, strict=True)]
    return _Split(shares, stepped)


def _equal(scores: Sequence[Score], total: int) -> list[int]:
    return apportion([1.0] * len(scores), total)


def _held(split: _Split, previous: Sequence[int | None], rules: ScoringRules) -> _Split:
    """The shares before, where the same endpoints share the same sum and each would move by a trifle only."""
    old = [share for share in previous if share is not None]
    total = sum(split.shares)
    if len(old) != len(split.shares) or sum(old) != total or old == split.shares:
        return split
    trifle = min(rules.min_change * total, rules.min_change_of_fair * total / len(old))
    if any(_moved(a, b, trifle) for a, b in zip(old, split.shares, strict=True)):
        return split
    return _Split(old, [WeightReason.HELD] * len(old), saturated=split.saturated)


def _moved(before: int, after: int, trifle: float) -> bool:
    """Off and on are never a trifle: a zero share is no traffic at all."""
    return abs(after - before) >= trifle or (before == 0) != (after == 0)


def _weight(key: str, score: Score, share: int, reason: WeightReason | None) -> EndpointWeight:
    return EndpointWeight(
        key=key,
        weight=share,
        draining=share == 0,
        score=score.value,
        terms=score.terms,
        reason=reason or score.reason,
        moved_by=score.moved_by,
    )


def _published(
    inputs: Sequence[EndpointInput],
    weights: Iterator[EndpointWeight],
    total: int,
    previous: Mapping[str, int],
    *,
    saturated: bool,
) -> PoolWeights:
    """`weights`: of the healthy endpoints, in the order of the input."""
    all_of_them = tuple(next(weights) if each.healthy else _drained(each.key) for each in inputs)
    shares = {each.key: each.weight for each in all_of_them if each.weight}
    changed = shares != {key: share for key, share in previous.items() if share}
    return PoolWeights(weights=all_of_them, total=total, saturated=saturated, changed=changed)


def _drained(key: str) -> EndpointWeight:
    return EndpointWeight(
        key=key, weight=0, draining=True, score=None, terms=(), reason=WeightReason.DRAINING, moved_by=None
    )

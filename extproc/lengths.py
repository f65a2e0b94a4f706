"""Output length by scenario, learnt: the P95 of finished answers, where those cut by a limit are lower bounds.

An answer that ended by the length cap is censored: it would have been longer. Counted as it stands it would
confirm the cap that cut it, and each estimate would be lower than the one before. The product-limit estimator
(Kaplan, Meier, JASA 1958) takes it for what it is. Where so many are cut that the P95 lies beyond all that was
seen, the longest one and the headroom are a lower bound: the estimate rises to it until answers end by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Annotated

from msgspec import Struct
from pydantic import Field

from extproc.model.config import Config, Tokens

SHARE = 0.95


class LengthsConfig(Config):
    """How output lengths are learnt from live usage."""

    enabled: bool
    headroom: Annotated[float, Field(ge=0, le=4)]
    window: Annotated[int, Field(ge=50, le=100_000)]
    min_samples: Annotated[int, Field(ge=10, le=100_000)]
    max_step: Annotated[float, Field(gt=0, le=10)]
    min_change: Annotated[float, Field(ge=0, le=1)]
    most: Tokens


class Answer(Struct, frozen=True, gc=False):
    """Output tokens of one answer; `cut` = it would have been longer."""

    tokens: int
    cut: bool


def p95(answers: Iterable[Answer]) -> tuple[int, bool] | None:
    """(tokens, whether answers really end by there); None of none.

    The smallest length that at least SHARE of all answers end at or before, by the product-limit estimator. False:
    too many were cut to tell, and the tokens are the longest that was seen.
    """
    ordered = sorted(answers, key=lambda answer: answer.tokens)
    if not ordered:
        return None
    surviving, left = 1.0, len(ordered)
    for tokens, group in groupby(ordered, key=lambda answer: answer.tokens):
        same = list(group)
        # Of those of one length the ones that ended come first: a cut one was longer.
        ended = sum(not answer.cut for answer in same)
        surviving *= 1 - ended / left
        left -= len(same)
        if surviving <= 1 - SHARE + 1e-12:
            return tokens, True
    return ordered[-1].tokens, False


def target(answers: Iterable[Answer], current: float, config: LengthsConfig) -> float:
    """What to grant, from 1 to `most` tokens: the P95 and the headroom.

    Where the P95 is not reached the answers say only that it lies further up: never less than `current` then, nor
    of no answers.
    """
    found = p95(answers)
    if found is None:
        return current
    tokens, reached = found
    wanted = max(1.0, min(float(config.most), float(round(tokens * (1 + config.headroom)))))
    return wanted if reached else max(current, wanted)


def moved(current: float, wanted: float, config: LengthsConfig) -> float:
    """One step from `current` towards `wanted`, by at most `max_step` of it: a shift is smoothed."""
    low, high = current / (1 + config.max_step), current * (1 + config.max_step)
    return min(max(wanted, low), high)


def worth_telling(told: float, current: float, config: LengthsConfig) -> bool:
    """A new snapshot forgets what was remembered of the one before: noise is not worth it."""
    return abs(current - told) > config.min_change * told

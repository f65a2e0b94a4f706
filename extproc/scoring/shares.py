"""Integer shares of an exact sum.

Largest remainder, not rounding each share: rounded shares add up to something else each tick, and a share
that only follows the sum would look like a change. Not highest averages either: they may be off by more than one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from statistics import median

LEAST_TOTAL = 1000
PER_ENDPOINT = 100


def total_of(endpoints: int) -> int:
    """What the shares of so many endpoints add up to: fine enough that a hundredth of a fair share counts."""
    return max(LEAST_TOTAL, PER_ENDPOINT * endpoints)


def apportion(amounts: Sequence[float], total: int) -> list[int]:
    """`total` split in proportion to amounts >= 0, at least one of them positive.

    The sum is exact, zero stays zero, a larger amount never gets less, and no share is off by one or more.
    """
    whole = sum(amounts)
    quotas = [total * amount / whole for amount in amounts]
    shares = [int(quota) for quota in quotas]
    left = total - sum(shares)
    # Amounts that differ too little for their quotas to differ are told apart by themselves.
    remainders = [(quotas[i] - shares[i], amount, i) for i, amount in enumerate(amounts) if amount > 0]
    for _, _, i in sorted(remainders, key=itemgetter(0, 1), reverse=True)[:left]:
        shares[i] += 1
    return shares


def carried(previous: Mapping[str, int], keys: Sequence[str], total: int) -> list[int] | None:
    """The shares before, for the endpoints there are: the starting point of this tick's step.

    What left is spread over the rest in proportion; a new endpoint starts with the median of the others.
    None where nothing can be carried over.
    """
    known = [previous[key] for key in keys if key in previous]
    if not any(known):
        return None
    # Most shares may be zero: a median of zero would never let a new one in.
    newcomer = median(known) or sum(known) / len(known)
    return apportion([previous.get(key, newcomer) for key in keys], total)


def step(before: Sequence[int], target: Sequence[int], most: float) -> list[int]:
    """From `before` towards `target`, both of one sum, no share by more than `most`.

    Along the line between them: cutting each share by itself would break the sum.
    """
    furthest = max(abs(b - a) for a, b in zip(before, target, strict=True))
    if furthest <= most:
        return list(target)
    part = max(0.0, most - 1) / furthest  # rounding to whole shares may add almost one
    moved = [a + part * (b - a) for a, b in zip(before, target, strict=True)]
    return apportion(moved, sum(target))

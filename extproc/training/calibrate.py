"""Temperatures: what logits are divided by, so that a confidence of 0.9 is right nine times in ten.

One for texts with Chinese characters, one for the others: what is known about the two differs, and so does how sure
one may be. Fitted on verdicts about rows that were not trained on (Guo et al. 2017).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from extproc.training.network import softmax

GRID = tuple(float(each) for each in np.geomspace(0.2, 5, 66))


def temperature(logits: Any, members: Any, truth: Any, weights: Any) -> float:
    """The one of GRID under which the true tiers are most likely; 1 where there are no rows.

    `logits` (n, c), `members` (c, t) 1 where a label is of a tier, `truth` (n,) numbers of tiers, `weights` (n,).
    """
    if not len(truth):
        return 1.0
    at = np.arange(len(truth))
    losses = [_loss((softmax(logits / each) @ members)[at, truth], weights) for each in GRID]
    return GRID[int(np.argmin(losses))]


def _loss(likely: Any, weights: Any) -> float:
    return float(-(np.log(np.maximum(likely, 1e-6)) * weights).sum() / weights.sum())

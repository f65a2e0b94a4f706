"""Samples of slots as one sample of the window."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from extproc.detectors.samples import MAX_SAMPLES
from extproc.detectors.views import Slots


def merged(slots: Slots, *, seed: int) -> NDArray[np.float64]:
    """A uniform sample of all, sorted, at most MAX_SAMPLES: of each slot as many as its share of what was seen."""
    slots = [slot for slot in slots if slot[1]]
    if not slots:
        return np.empty(0)
    seen = sum(count for count, _ in slots)
    # No slot can give more than it kept: the one with the thinnest sample sets the size of all.
    size = min(MAX_SAMPLES, *(int(len(values) * seen / count) for count, values in slots))
    drawn = np.random.default_rng(seed)
    parts = []
    for count, values in slots:
        wanted = min(len(values), max(1, round(size * count / seen)))
        kept = np.asarray(values)
        parts.append(kept if wanted == len(values) else drawn.choice(kept, wanted, replace=False))
    return np.sort(np.concatenate(parts))

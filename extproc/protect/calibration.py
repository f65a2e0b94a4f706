"""Bytes of a prompt per token, learnt from what engines charge: their tokenizers are not here.

A body is more than its prompt, so only long ones tell: there the rest weighs little.
"""

from __future__ import annotations

from collections.abc import Mapping

LEAST_BYTES = 2048
"""Of a request's body."""

LOWEST, HIGHEST = 0.5, 16.0
"""What lies outside is no text: images, or a charge for something else."""

STEP = 0.05
"""How far each request moves it."""

MAX_MODELS = 256


def calibrated(
    known: Mapping[str, float], model: str, request_bytes: int, prompt_tokens: int | None
) -> Mapping[str, float]:
    """With one more answer; the same mapping where it tells nothing. `model`: its profile."""
    if request_bytes < LEAST_BYTES or not prompt_tokens or prompt_tokens < 1:
        return known
    ratio = request_bytes / prompt_tokens
    if not LOWEST <= ratio <= HIGHEST or (model not in known and len(known) >= MAX_MODELS):
        return known
    before = known.get(model, ratio)
    return {**known, model: before + STEP * (ratio - before)}

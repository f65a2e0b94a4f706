"""A small intent model: three words are known."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace

from extproc.model.names import Tier
from extproc.request.classify.features import hashing, rows
from extproc.request.classify.weights import Label, Weights

LABELS = (
    Label("a:refund", "returns", Tier.STRICT),
    Label("a:weather", "general", Tier.NORMAL),
    Label("a:poem", "copywriting", Tier.CREATIVE),
)
WORDS = ("refund", "weather", "poem")


def small(**changes: Any) -> Weights:
    how = hashing(latin=(3, 5), han=(1, 2, 3), bits=12, seed=3)
    table = np.zeros((1 << 12, 3), np.int8)
    for number, word in enumerate(WORDS):
        table[rows(word, how)[0], number] = 100
    weights = Weights(
        hashing=how,
        table=table,
        scale=0.02,
        bias=np.zeros(3, np.float32),
        layer=np.eye(3, dtype=np.float32) * 6,
        offset=np.zeros(3, np.float32),
        temperatures=(1.0, 1.0),
        leans=(0.0, 0.0),
        labels=LABELS,
        about={"date": "2024-01-01"},
    )
    return replace(weights, **changes)

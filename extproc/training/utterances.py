"""The project's own utterances as rows: every pattern spelled out, the same for the same seed."""

from __future__ import annotations

import random
from importlib import resources
from typing import Final

from extproc.model.names import Tier
from extproc.training.patterns import Patterns, read, spelled
from extproc.training.rows import OPEN, LabelMap, Row, is_chinese
from extproc.training.slips import typed

SOURCE: Final = "utterances"
FILES: Final = ("zh_strict.txt", "zh_shop.txt", "zh_open.txt", "en.txt", "en_shop.txt", "en_open.txt")

PER_PATTERN: Final = {Tier.STRICT: 25, Tier.NORMAL: 80, Tier.CREATIVE: 60}
"""Texts of a pattern: strict ones are written out, the others live on their slots."""


def rows(labels: LabelMap, *, seed: int) -> list[Row]:
    """Each row's `group` is its pattern: texts of one pattern never stand on both sides of a split."""
    return [row for name in FILES for row in _of_file(shipped(name), name, labels, seed)]


def shipped(name: str) -> Patterns:
    return read(resources.files("extproc.training").joinpath("data", name).read_text(encoding="utf-8"), name)


def _of_file(patterns: Patterns, name: str, labels: LabelMap, seed: int) -> list[Row]:
    found, stem = [], name.partition(".")[0]
    for number, pattern in enumerate(patterns.patterns):
        label = labels.label(f"{SOURCE}:{pattern.label}")
        if label is None:
            continue
        chance = random.Random(f"{seed}:{pattern.text}")
        texts = dict.fromkeys(
            _typed(spelled(pattern, patterns.slots, chance), chance) for _ in range(PER_PATTERN[label.tier])
        )
        found += [Row(text, label, f"{SOURCE}-{stem}", OPEN, f"{stem}:{number}") for text in texts]
    return found


def _typed(text: str, chance: random.Random) -> str:
    return typed(text, chinese=is_chinese(text), chance=chance)

"""How good a model is as it serves: rules before it, the default tier where it is unsure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from extproc.model.names import Tier
from extproc.model.values import Caller, Classification
from extproc.request.classify.pick import classify
from extproc.settings import Settings
from extproc.snapshot import Classifier
from extproc.training.figures import TIERS, Figures, figures, macro_f1
from extproc.training.rows import Row

NOBODY = Caller(trusted=False, trust_reason="", tenant="", label=None, request_class=None, overrides={})


class Said(Struct, frozen=True):
    """A text as classifiers see it."""

    text: str


class Part(Struct, frozen=True):
    """Of the rows of one language (`source` "" = all of them) or of one source in it: the most likely tier, and the
    tier after the fallback."""

    language: str
    source: str
    likely: Figures
    after: Figures


class Scenarios(Struct, frozen=True):
    """Of rows that name a scenario. `confusions`: (true, told, how often), the most frequent first."""

    language: str
    rows: int
    macro_f1: float
    f1: Mapping[str, float]
    confusions: tuple[tuple[str, str, int], ...]


class Verdicts(Struct, frozen=True):
    """Of the same rows: without a least confidence, and with it."""

    likely: Sequence[Classification]
    after: Sequence[Classification]


def verdicts(
    texts: Sequence[str],
    classifiers: Sequence[Classifier],
    settings: Settings,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> Verdicts:
    """`classifiers` as a snapshot has them."""
    config = settings.classify
    likely: list[Classification] = []
    after: list[Classification] = []
    for number, text in enumerate(texts, 1):
        for found, least in ((likely, 0.0), (after, config.min_confidence)):
            found.append(
                classify(
                    Said(text),
                    NOBODY,
                    classifiers,
                    default_tier=config.default_tier,
                    default_scenario=config.default_scenario,
                    min_confidence=least,
                )
            )
        if number % 500 == 0 or number == len(texts):
            tell(number, len(texts))
    return Verdicts(likely, after)


def parts(rows: Sequence[Row], told: Verdicts, minimum: float) -> list[Part]:
    """Each language, then its sources."""
    likely, after = (numbers(each.tier for each in verdicts) for verdicts in (told.likely, told.after))
    return parted(rows, likely, after, np.array([each.confidence for each in told.likely]), minimum)


def parted(rows: Sequence[Row], likely: Any, after: Any, sure: Any, minimum: float) -> list[Part]:
    """Each language, then its sources. (n,) each: numbers of tiers before and after the fallback, confidence."""
    truth, names = true_tiers(rows), [tier.value for tier in TIERS]
    found = []
    for language, source, here in groups_of(rows):
        before = figures(truth[here], likely[here], names, confidence=sure[here], minimum=minimum)
        found.append(Part(language, source, before, figures(truth[here], after[here], names)))
    return found


def groups_of(rows: Sequence[Row]) -> list[tuple[str, str, Any]]:
    """(language, source, which rows): each language as a whole (source ""), then its sources."""
    languages = np.array([row.language for row in rows])
    sources = np.array([row.source for row in rows])
    found: list[tuple[str, str, Any]] = []
    for language in sorted(set(languages.tolist())):
        ours = languages == language
        found.append((language, "", ours))
        found += [(language, source, ours & (sources == source)) for source in sorted(set(sources[ours].tolist()))]
    return found


def of_open(rows: Sequence[Row], told: Verdicts, licence: str) -> list[tuple[str, Figures]]:
    """The most likely tier over rows of one licence, by language."""
    found = []
    for language in sorted({row.language for row in rows}):
        here = [n for n, row in enumerate(rows) if row.language == language and row.licence == licence]
        if here:
            likely = numbers(told.likely[n].tier for n in here)
            names = [tier.value for tier in TIERS]
            found.append((language, figures(true_tiers(rows[n] for n in here), likely, names)))
    return found


def scenarios(rows: Sequence[Row], told: Verdicts) -> list[Scenarios]:
    """By language, over the rows that name one."""
    found = []
    for language in sorted({row.language for row in rows}):
        here = [n for n, row in enumerate(rows) if row.language == language and row.label.scenario]
        if not here:
            continue
        truth = [rows[n].label.scenario for n in here]
        said = [told.likely[n].scenario for n in here]
        score, each = macro_f1(truth, said)
        pairs = [pair for pair in zip(truth, said, strict=True) if pair[0] != pair[1]]
        counts = sorted(((*pair, pairs.count(pair)) for pair in set(pairs)), key=lambda one: (-one[2], one[:2]))
        found.append(Scenarios(language, len(here), score, each, tuple(counts)))
    return found


def true_tiers(rows: Iterable[Row]) -> Any:
    """(n,) as in TIERS."""
    return numbers(row.label.tier for row in rows)


def numbers(tiers: Iterable[Tier]) -> Any:
    """(n,) as in TIERS."""
    return np.array([TIERS.index(tier) for tier in tiers], int)

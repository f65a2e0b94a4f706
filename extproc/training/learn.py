"""From rows to weights: folds, fitting, calibration, rounding to int8, and adapting weights to a shop of one's own.

Everything is drawn from one seed: the same rows give the same file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from extproc.model.names import Tier
from extproc.request.classify.features import Hashing, hashing
from extproc.request.classify.weights import Label, Weights
from extproc.training.calibrate import temperature
from extproc.training.examine import Part, parted, true_tiers
from extproc.training.figures import TIERS
from extproc.training.network import Network, Recipe, fit, matrix, softmax
from extproc.training.rows import Row, is_chinese

HASH_SEED = 20_241_115
"""Of the hashing alone, so that models of any seed can be adapted."""

INT8 = 127

LEAST_REHEARSED, REHEARSED_PER_ROW = 1000, 5

Tell = Callable[[str, int, int], None]
"""Told what is under way, and how many steps of how many are done."""


def quiet(what: str, done: int, total: int) -> None:
    pass


class Task(Struct, frozen=True):
    """Rows as numbers. `labels` sorted by tier and scenario; `targets` (n,) numbers of labels; `weights` (n,)."""

    labels: tuple[Label, ...]
    texts: Any
    targets: Any
    weights: Any


def how(recipe: Recipe) -> Hashing:
    return hashing(latin=recipe.latin, han=recipe.han, bits=recipe.bits, seed=HASH_SEED)


def sorted_labels(rows: Sequence[Row], more: Sequence[Label] = ()) -> tuple[Label, ...]:
    order = {tier: number for number, tier in enumerate(TIERS)}
    return tuple(
        sorted(
            {row.label for row in rows} | set(more), key=lambda each: (order[each.tier], each.scenario, each.name)
        )
    )


def task(rows: Sequence[Row], recipe: Recipe, hashed: Hashing, labels: tuple[Label, ...] | None = None) -> Task:
    """`labels` None = those of the rows."""
    labels = sorted_labels(rows) if labels is None else labels
    numbers = {label: number for number, label in enumerate(labels)}
    per_source = Counter(row.source for row in rows)
    weights = np.array([per_source[row.source] ** recipe.source_weight for row in rows], np.float32)
    return Task(
        labels,
        matrix([row.text for row in rows], hashed),
        np.array([numbers[row.label] for row in rows]),
        weights / weights.mean() if len(rows) else weights,
    )


def learn(rows: Sequence[Row], recipe: Recipe, *, seed: int, folds: int, tell: Tell = quiet) -> tuple[Weights, Any]:
    """Weights of all rows, calibrated on verdicts about rows that were left out, and those verdicts: (n, tiers)
    probabilities by models that have not seen the row.
    """
    hashed = how(recipe)
    whole = task(rows, recipe, hashed)
    logits = left_out(rows, whole, recipe, folds=folds, seed=seed, tell=tell)
    temperatures = calibrated(rows, whole, logits)
    held = tier_probabilities(rows, whole.labels, logits, temperatures, recipe.leans)
    network = _fitted(whole, recipe, seed, tell, "all rows")
    return rounded(network, hashed, temperatures, recipe.leans, whole.labels), held


def _fitted(part: Task, recipe: Recipe, seed: int, tell: Tell, what: str) -> Network:
    network = Network.fresh(recipe, len(part.labels), np.random.default_rng(seed))
    fit(
        network,
        part.texts,
        part.targets,
        part.weights,
        recipe,
        random=np.random.default_rng(seed + 1),
        progress=lambda done, total: tell(what, done, total),
    )
    return network


def left_out(rows: Sequence[Row], whole: Task, recipe: Recipe, *, folds: int, seed: int, tell: Tell = quiet) -> Any:
    """(n, c) logits of each row by a network that has not seen it."""
    logits = np.zeros((len(rows), len(whole.labels)), np.float32)
    of = fold_of(rows, folds, seed)
    for fold in range(folds):
        seen, held = np.flatnonzero(of != fold), np.flatnonzero(of == fold)
        part = Task(whole.labels, whole.texts[seen], whole.targets[seen], whole.weights[seen])
        network = _fitted(part, recipe, seed, tell, f"fold {fold + 1} of {folds}")
        logits[held] = network.logits(whole.texts[held])
    return logits


def fold_of(rows: Sequence[Row], folds: int, seed: int) -> Any:
    """(n,) the fold of each row: labels are spread evenly, rows of one group stay together."""
    random = np.random.default_rng(seed)
    groups: dict[str, dict[str, list[int]]] = {}
    for number, row in enumerate(rows):
        groups.setdefault(row.label.name, {}).setdefault(row.group or f"#{number}", []).append(number)
    found = np.zeros(len(rows), int)
    for of_label in groups.values():
        names = list(of_label)
        first = int(random.integers(folds))
        for place, at in enumerate(random.permutation(len(names))):
            found[of_label[names[at]]] = (first + place) % folds
    return found


def members(labels: Sequence[Label]) -> Any:
    """(c, tiers) 1 where a label is of a tier."""
    return np.array([[label.tier is tier for tier in TIERS] for label in labels], np.float32)


def calibrated(rows: Sequence[Row], whole: Task, logits: Any) -> tuple[float, float]:
    """Temperatures, Latin and Chinese."""
    chinese = np.array([is_chinese(row.text) for row in rows])
    of = members(whole.labels)
    truth = of.argmax(axis=1)[whole.targets]
    latin, han = (temperature(logits[here], of, truth[here], whole.weights[here]) for here in (~chinese, chinese))
    return latin, han


def tier_probabilities(
    rows: Sequence[Row],
    labels: Sequence[Label],
    logits: Any,
    temperatures: tuple[float, float],
    leans: tuple[float, float],
) -> Any:
    """(n, tiers), as `Reader` has them."""
    chinese = np.array([is_chinese(row.text) for row in rows], int)
    of = members(labels)
    scaled = logits / np.array(temperatures, np.float32)[chinese][:, None]
    scaled = scaled + np.array(leans, np.float32)[chinese][:, None] * of[:, TIERS.index(Tier.STRICT)]
    return softmax(scaled) @ of


def parts_of(rows: Sequence[Row], held: Any, minimum: float = 0.8) -> list[Part]:
    """Figures of what was held out, (n, tiers) probabilities, by language and source."""
    likely, sure = held.argmax(axis=1), held.max(axis=1)
    after = np.where(sure >= minimum, likely, TIERS.index(Tier.NORMAL))
    return parted(rows, likely, after, sure, minimum)


def without_each_source(
    rows: Sequence[Row], recipe: Recipe, *, seed: int, tell: Tell = quiet
) -> dict[str, tuple[float, int]]:
    """(accuracy, rows) of each source by a model of the others: what a shop of its own may expect at first."""
    hashed = how(recipe)
    found = {}
    for source in sorted({row.source for row in rows}):
        seen = [row for row in rows if row.source != source]
        held = [row for row in rows if row.source == source]
        if not seen:
            continue
        part = task(seen, recipe, hashed)
        network = _fitted(part, recipe, seed, tell, f"without {source}")
        told = _right(network, hashed, part.labels, held, temperatures=(1.0, 1.0), leans=recipe.leans)
        found[source] = float(told.mean()), len(held)
    return found


def rounded(
    network: Network,
    hashed: Hashing,
    temperatures: tuple[float, float],
    leans: tuple[float, float],
    labels: tuple[Label, ...],
) -> Weights:
    """The table in int8; the layers, which are small, as they are. `about` is still empty."""
    scale = float(np.abs(network.table).max()) / INT8 or 1.0
    return Weights(
        hashing=hashed,
        table=np.rint(network.table / scale).astype(np.int8),
        scale=scale,
        bias=network.bias,
        layer=network.layer,
        offset=network.offset,
        temperatures=temperatures,
        leans=leans,
        labels=labels,
        about={},
    )


# ── a shop of one's own ──────────────────────────────────────────────────────────────────────────────


def adapt(
    start: Weights,
    rows: Sequence[Row],
    rehearsal: Sequence[Row],
    recipe: Recipe,
    *,
    seed: int,
    tell: Tell = quiet,
) -> Weights:
    """`start`, which knows more than a few hundred rows can tell, and these rows beside it.

    New labels begin where texts like theirs lie. `rehearsal`: rows of the kind `start` was learnt from, so that it
    is not forgotten; those whose label `start` does not know are left out.
    """
    known = set(start.labels)
    labels = sorted_labels(rows, start.labels)
    rehearsed = _some([row for row in rehearsal if row.label in known], len(rows), seed)
    network = widened(start, labels)
    both = [*rows, *rehearsed]
    part = task(both, recipe, start.hashing, labels)
    _settle(network, part, {number for number, label in enumerate(labels) if label not in known})
    weights = np.concatenate(
        [
            np.full(len(rows), recipe.own_share / max(len(rows), 1)),
            np.full(len(rehearsed), (1 - recipe.own_share) / max(len(rehearsed), 1)),
        ]
    ).astype(np.float32)
    fit(
        network,
        part.texts,
        part.targets,
        weights / weights.mean(),
        recipe,
        random=np.random.default_rng(seed),
        progress=lambda done, total: tell("adapting", done, total),
    )
    return rounded(network, start.hashing, start.temperatures, start.leans, labels)


def _some(rehearsal: Sequence[Row], own: int, seed: int) -> list[Row]:
    """As many as are enough not to forget: more only take longer."""
    most = min(len(rehearsal), max(LEAST_REHEARSED, REHEARSED_PER_ROW * own))
    chosen = np.sort(np.random.default_rng(seed).permutation(len(rehearsal))[:most])
    return [rehearsal[at] for at in chosen.tolist()]


def widened(start: Weights, labels: Sequence[Label]) -> Network:
    """The network behind weights, with room for more labels."""
    numbers = {label: number for number, label in enumerate(start.labels)}
    size = len(start.bias)
    layer, offset = np.zeros((size, len(labels)), np.float32), np.zeros(len(labels), np.float32)
    for number, label in enumerate(labels):
        if label in numbers:
            layer[:, number], offset[number] = start.layer[:, numbers[label]], start.offset[numbers[label]]
    table = start.table.astype(np.float32) * np.float32(start.scale)
    return Network(table, start.bias.copy(), layer, offset)


def _settle(network: Network, part: Task, new: set[int]) -> None:
    """A new label points to the middle of its texts, as strongly as the others point."""
    hidden = np.tanh(part.texts @ network.table + network.bias)
    old = [number for number in range(len(part.labels)) if number not in new]
    length = float(np.linalg.norm(network.layer[:, old], axis=0).mean())
    centre = hidden.mean(axis=0)
    for number in new:
        middle = hidden[part.targets == number].mean(axis=0) - centre
        network.layer[:, number] = middle * (length / max(float(np.linalg.norm(middle)), 1e-6))
        network.offset[number] = float(network.offset[old].mean())


def adapted_folds(
    start: Weights,
    rows: Sequence[Row],
    rehearsal: Sequence[Row],
    recipe: Recipe,
    *,
    folds: int,
    seed: int,
    tell: Tell = quiet,
) -> tuple[float, float]:
    """Accuracy of `start`, and of what it becomes, on rows that the latter has not seen."""
    before, after = right(start, rows), np.zeros(len(rows), bool)
    of = fold_of(rows, folds, seed)
    for fold in range(folds):
        seen = [row for row, its in zip(rows, of, strict=True) if its != fold]
        held = [row for row, its in zip(rows, of, strict=True) if its == fold]
        if seen and held:
            after[of == fold] = right(adapt(start, seen, rehearsal, recipe, seed=seed, tell=tell), held)
    return float(before.mean()), float(after.mean())


def right(weights: Weights, rows: Sequence[Row]) -> Any:
    """(n,) whether the most likely tier is the true one."""
    network = widened(weights, weights.labels)
    return _right(
        network, weights.hashing, weights.labels, rows, temperatures=weights.temperatures, leans=weights.leans
    )


def _right(
    network: Network,
    hashed: Hashing,
    labels: Sequence[Label],
    rows: Sequence[Row],
    *,
    temperatures: tuple[float, float],
    leans: tuple[float, float],
) -> Any:
    logits = network.logits(matrix([row.text for row in rows], hashed))
    return tier_probabilities(rows, labels, logits, temperatures, leans).argmax(axis=1) == true_tiers(rows)

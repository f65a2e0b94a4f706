"""A table of n-grams, a squeezed sum, a linear layer: the intent model in float32, and how it is fitted.

Minibatches with Adam on a cross-entropy over fine labels. What keeps it from learning texts by heart: n-grams left
out at random (a text is then told by any part of it, typos included), dimensions left out at random, and a little
of each target given to all labels. Only rows of the table that stand in a batch are touched. The rejected
alternatives: a weight per n-gram and label (one-vs-rest, hinge or logistic) is as accurate, eight times as large
and as slow; a second hidden layer gains nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from scipy import sparse

from extproc.request.classify.features import Hashing, rows

Progress = Callable[[int, int], None]
"""Told how many batches of how many are done."""


class Recipe(Struct, frozen=True):
    """`dimensions` of the table; `averaged`: of so many last epochs; `drop` and `drop_hidden`: shares left out;
    `smooth`: share of a target that all labels get; `source_weight`: a row of a source of n rows counts n to this
    power; `leans`: of texts without Chinese characters, and with them, added to the log-odds of strict against the
    rest; `own_share`: of the weight, where a model is adapted to rows of one's own.
    """

    dimensions: int = 96
    bits: int = 16
    latin: tuple[int, ...] = (3, 5)
    han: tuple[int, ...] = (1, 2, 3)
    epochs: int = 8
    averaged: int = 3
    batch: int = 256
    rate: float = 0.01
    drop: float = 0.4
    drop_hidden: float = 0.2
    smooth: float = 0.1
    source_weight: float = -0.3
    leans: tuple[float, float] = (-0.6, 0.0)
    own_share: float = 0.5


ADAPTING = Recipe(epochs=20, rate=0.003, batch=64)
"""To a few hundred rows, from weights that know more."""


class Network:
    """Float32: `table` (2^bits, d), `bias` (d,), `layer` (d, c), `offset` (c,)."""

    def __init__(self, table: Any, bias: Any, layer: Any, offset: Any) -> None:
        self.table, self.bias, self.layer, self.offset = table, bias, layer, offset

    @classmethod
    def fresh(cls, recipe: Recipe, labels: int, random: np.random.Generator) -> Network:
        """The table is 0: an n-gram nobody has seen says nothing."""
        size = recipe.dimensions
        layer = random.standard_normal((size, labels)) * 0.3 / size**0.5
        return cls(
            np.zeros((1 << recipe.bits, size), np.float32),
            np.zeros(size, np.float32),
            layer.astype(np.float32),
            np.zeros(labels, np.float32),
        )

    def arrays(self) -> tuple[Any, ...]:
        return self.table, self.bias, self.layer, self.offset

    def logits(self, texts: Any) -> Any:
        """(n, c) of (n, 2^bits) n-grams."""
        return np.tanh(texts @ self.table + self.bias) @ self.layer + self.offset


def matrix(texts: Sequence[str], how: Hashing) -> Any:
    """(n, 2^bits) CSR float32: the n-grams of each text, as often as they stand there, over the root of their
    number."""
    found = [np.sort(rows(text, how)[0]).astype(np.int32) for text in texts]
    counts = np.array([len(each) for each in found], np.int64)
    weight = (1 / np.sqrt(np.maximum(counts, 1))).astype(np.float32)
    columns = np.concatenate(found) if found else np.zeros(0, np.int32)
    ends = np.concatenate([[0], np.cumsum(counts)])
    return sparse.csr_matrix((np.repeat(weight, counts), columns, ends), shape=(len(texts), 1 << how.bits))


def softmax(logits: Any) -> Any:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


class _Adam:
    """Kingma and Ba 2015, without the correction of the first steps, whose rate is small enough."""

    def __init__(self, values: Any) -> None:
        self.values, self.first, self.second = values, np.zeros_like(values), np.zeros_like(values)

    def step(self, slope: Any, rate: float, at: Any = slice(None)) -> None:
        first = 0.9 * self.first[at] + 0.1 * slope
        second = 0.99 * self.second[at] + 0.01 * slope * slope
        self.first[at], self.second[at] = first, second
        self.values[at] -= np.float32(rate) * first / (np.sqrt(second) + np.float32(1e-6))


def fit(
    network: Network,
    texts: Any,
    targets: Any,
    weights: Any,
    recipe: Recipe,
    *,
    random: np.random.Generator,
    progress: Progress = lambda done, total: None,
) -> None:
    """Change the network in place. `targets` (n,) label numbers, `weights` (n,) around 1."""
    count = texts.shape[0]
    total = recipe.epochs * -(-count // recipe.batch)
    table, layers = _Adam(network.table), [_Adam(network.layer), _Adam(network.offset), _Adam(network.bias)]
    done = 0
    average = _Average(network)
    for epoch in range(recipe.epochs):
        order = random.permutation(count)
        for start in range(0, count, recipe.batch):
            chosen = order[start : start + recipe.batch]
            rate = recipe.rate * (1 - done / total)
            batch = _Batch(texts[chosen], targets[chosen], weights[chosen])
            slopes = _slopes(network, batch, recipe, random)
            table.step(slopes[0], rate, slopes[1])
            for layer, slope in zip(layers, slopes[2:], strict=True):
                layer.step(slope, rate)
            done += 1
            progress(done, total)
        if epoch >= recipe.epochs - recipe.averaged:
            average.add(network)
    average.into(network)


class _Average:
    """The mean of the last epochs' weights, which is better at texts nobody has seen (Izmailov et al. 2018)."""

    def __init__(self, network: Network) -> None:
        self._sums = [np.zeros_like(each) for each in network.arrays()]
        self._count = 0

    def add(self, network: Network) -> None:
        for number, each in enumerate(network.arrays()):
            self._sums[number] += each
        self._count += 1

    def into(self, network: Network) -> None:
        for total, each in zip(self._sums, network.arrays(), strict=True):
            each[...] = total / np.float32(self._count)


class _Batch(Struct, frozen=True):
    texts: Any
    targets: Any
    weights: Any


def _slopes(network: Network, batch: _Batch, recipe: Recipe, random: np.random.Generator) -> tuple[Any, ...]:
    """Of the mean loss of a batch: table rows and which they are, layer, offset, bias."""
    size, labels = len(batch.targets), len(network.offset)
    seen, columns = _thinned(batch.texts, recipe.drop, random)
    hidden = np.tanh(seen @ network.table[columns] + network.bias)
    mask = (random.random(hidden.shape, np.float32) >= recipe.drop_hidden) / np.float32(1 - recipe.drop_hidden)
    kept = hidden * mask
    slope = softmax(kept @ network.layer + network.offset)
    slope -= np.float32(recipe.smooth / labels)
    slope[np.arange(size), batch.targets] -= np.float32(1 - recipe.smooth)
    slope *= (batch.weights / size)[:, None]
    back = (slope @ network.layer.T) * mask * (1 - hidden * hidden)
    return seen.T @ back, columns, kept.T @ slope, slope.sum(axis=0), back.sum(axis=0)


def _thinned(texts: Any, drop: float, random: np.random.Generator) -> tuple[Any, Any]:
    """The batch without the share `drop` of its n-grams, and the table rows that its columns stand for."""
    kept = random.random(texts.nnz, np.float32) >= drop
    ends = np.concatenate([[0], np.cumsum(kept)])[texts.indptr]
    columns, numbers = np.unique(texts.indices[kept], return_inverse=True)
    values = texts.data[kept] * np.float32((1 - drop) ** -0.5)
    return sparse.csr_matrix((values, numbers, ends), shape=(texts.shape[0], len(columns))), columns

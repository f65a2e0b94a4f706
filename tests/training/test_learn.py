"""Learning: the same rows give the same weights; a shop of its own is learnt from a few hundred rows."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from extproc.model.names import Tier
from extproc.request.classify.weights import Label, Reader, encode
from extproc.training import learn
from extproc.training.network import ADAPTING, Recipe
from extproc.training.rows import Row

SMALL = Recipe(dimensions=16, bits=12, epochs=6, batch=32)
STRICT, NORMAL = Label("a:refund", "returns", Tier.STRICT), Label("a:weather", "general", Tier.NORMAL)
CREATIVE = Label("a:poem", "copywriting", Tier.CREATIVE)
WORDS = {
    STRICT: ("refund", "send back", "money back", "退款"),
    NORMAL: ("weather", "time is it", "explain", "天气"),
    CREATIVE: ("poem", "slogan", "story", "写诗"),
}
PLACES = ("please", "now", "today", "in Rome", "for me", "quickly", "again", "明天", "at home", "tonight")


def rows(source: str = "a") -> list[Row]:
    return [
        Row(f"{word} {place} {number}", replace(label, name=label.name.replace("a:", f"{source}:")), source)
        for label, words in WORDS.items()
        for word in words
        for place in PLACES
        for number in ("", "x", "ok")
    ]


def test_twice_the_same_file_and_another_one_by_another_seed() -> None:
    first, second, other = (encode(learn.learn(rows(), SMALL, seed=seed, folds=2)[0]) for seed in (1, 1, 2))
    assert first == second != other


def test_it_learns_what_the_rows_say() -> None:
    weights, held = learn.learn(rows(), SMALL, seed=1, folds=3)
    assert learn.right(weights, rows()).mean() > 0.98
    overall = learn.parts_of(rows(), held)[0]
    assert overall.source == "" and overall.likely.accuracy > 0.9
    told = Reader(weights).probabilities("I want a refund")
    assert told is not None and max(told) == told[0] > 0.5


def test_rows_of_a_group_stay_together_and_labels_are_spread() -> None:
    grouped = [replace(row, group=f"{number // 10}") for number, row in enumerate(rows())]
    of = learn.fold_of(grouped, 3, seed=4)
    for label in {row.label.name for row in grouped}:
        here = [(row.group, its) for row, its in zip(grouped, of.tolist(), strict=True) if row.label.name == label]
        assert len(set(here)) == len({group for group, _ in here}), "each group is in one fold"
        assert {its for _, its in here} == {0, 1, 2}


def test_a_shop_of_its_own_is_learnt_and_the_rest_is_not_forgotten() -> None:
    start, _ = learn.learn(rows(), SMALL, seed=1, folds=2)
    strange = {"zorp": Tier.STRICT, "blim": Tier.CREATIVE, "quux": Tier.NORMAL}
    own = [
        Row(f"{word} {place} {more}", Label(f"shop:{word}", "", tier), "shop")
        for word, tier in strange.items()
        for place in PLACES
        for more in ("", "a", "b", "c")
    ]
    before, after = learn.adapted_folds(start, own, rows(), ADAPTING, folds=3, seed=1)
    assert before < 0.7 and after > 0.9
    adapted = learn.adapt(start, own, rows(), ADAPTING, seed=1)
    assert learn.right(adapted, rows()).mean() > 0.95, "what it knew"
    assert encode(adapted) == encode(learn.adapt(start, own, rows(), ADAPTING, seed=1))


def test_without_each_source() -> None:
    found = learn.without_each_source([*rows("a"), *rows("b")], SMALL, seed=1)
    assert set(found) == {"a", "b"} and found["a"][1] == len(rows())
    assert found["a"][0] > 0.9, "the other one is alike"


@pytest.mark.parametrize("value", [0.0, 1.5])
def test_rounding_keeps_the_table(value: float) -> None:
    network = learn.Network.fresh(SMALL, 3, np.random.default_rng(1))
    network.table[5, 3] = value
    found = learn.rounded(network, learn.how(SMALL), (1.0, 1.0), (0.0, 0.0), (STRICT, NORMAL, CREATIVE))
    assert found.table[5, 3] * found.scale == pytest.approx(value)

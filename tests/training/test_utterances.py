"""The project's own texts: readable, labelled, and none of them in the set they are judged by."""

from __future__ import annotations

import re

import pytest

from extproc.settings import load
from extproc.training import utterances
from extproc.training.patterns import Patterns
from extproc.training.rows import label_map, read
from tests.training.data import WRITTEN

SETTINGS = load("")
SCENARIOS = SETTINGS.scenarios
LABELS = label_map(SETTINGS)
ROWS = utterances.rows(LABELS, seed=1)
TESTED = read(WRITTEN, label_map(SETTINGS, shipped=False))


def test_one_seed_one_set() -> None:
    assert utterances.rows(LABELS, seed=1) == ROWS != utterances.rows(LABELS, seed=2)


def test_both_languages_and_every_scenario() -> None:
    for language in ("en", "zh"):
        named = {row.label.scenario for row in ROWS if row.language == language}
        assert set(SCENARIOS) <= named | {""}


def test_the_written_set_has_forty_of_each() -> None:
    for language in ("en", "zh"):
        for scenario in SCENARIOS:
            count = sum(row.language == language and row.label.scenario == scenario for row in TESTED)
            assert count >= 40, (language, scenario)


def regex(pattern: str, slots: dict[str, str]) -> str:
    found = re.sub(r"[.?*+^$\[\]\\]", lambda match: "\\" + match[0], pattern)
    found = re.sub(r"\{(\w+)\}", lambda match: f"(?:{slots.get(match[1], '.{1,40}')})", found)
    return found.replace("(", "(?:").replace("(?:?:", "(?:")


@pytest.mark.parametrize("name", utterances.FILES)
def test_no_text_that_is_judged_by_comes_from_a_pattern(name: str) -> None:
    patterns: Patterns = utterances.shipped(name)
    plain = {
        slot: "|".join(map(re.escape, values))
        for slot, values in patterns.slots.items()
        if not any("{" in each for each in values)
    }
    texts = [" ".join(row.text.lower().strip("?.!？。").split()) for row in TESTED]
    for pattern in patterns.patterns:
        compiled = re.compile(regex(pattern.text.lower(), plain))
        assert not [text for text in texts if compiled.fullmatch(text)], pattern.text


def test_none_of_them_is_a_trained_text() -> None:
    trained = {row.text.lower() for row in ROWS}
    assert not trained & {row.text.lower() for row in TESTED}

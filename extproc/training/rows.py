"""Labelled texts: rows of TSV files, and what their labels stand for."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path

from msgspec import Struct

from extproc.errors import CannotStart, ConfigError, Problem
from extproc.model.names import Tier
from extproc.request.classify.features import HAN
from extproc.request.classify.weights import Label
from extproc.settings import Settings

OPEN = "open"
"""The licence of rows whose weights may be given away."""

MOST_PROBLEMS = 20


class Row(Struct, frozen=True):
    """`group` "" = the row stands for itself; rows of one group are never split."""

    text: str
    label: Label
    source: str
    licence: str = ""
    group: str = ""

    @property
    def language(self) -> str:
        return "zh" if is_chinese(self.text) else "en"


def is_chinese(text: str) -> bool:
    return any(ord(char) >= HAN and ord(char) < 0x10000 for char in text)


DROP = "drop"
"""In a tier's place: rows of that label are left out."""


class Meaning(Struct, frozen=True):
    """One line of the labels file. `scenario` "" = none, `tier` None = as the row says."""

    pattern: str
    scenario: str
    tier: Tier | None
    dropped: bool = False


class LabelMap:
    """What labels stand for: the first line of the file whose pattern fits; without one, what the row says itself.

    `scenarios`: the tier of every scenario, from the configuration.
    """

    def __init__(self, meanings: Iterable[Meaning], scenarios: Mapping[str, Tier]) -> None:
        self._meanings = tuple(meanings)
        self._scenarios = scenarios
        self._known: dict[tuple[str, str], Label | None] = {}

    def label(self, name: str, said: str = "") -> Label | None:
        """`said`: the row's own scenario or tier, "" = none; the labels file overrules it. None = to be left out.
        ValueError where nothing tells the tier, or scenario and tier contradict each other.
        """
        key = name, said
        if key not in self._known:
            self._known[key] = self._label(name, said)
        return self._known[key]

    def _label(self, name: str, said: str) -> Label | None:
        meaning = next((each for each in self._meanings if fnmatchcase(name, each.pattern)), None)
        if meaning is not None and meaning.dropped:
            return None
        if meaning is not None:
            said = meaning.scenario or (meaning.tier or said)
        scenario = said if said in self._scenarios else ""
        tier = self._scenarios.get(said) or _tier(said)
        if tier is None:
            raise ValueError(f"{said!r} is neither a scenario nor a tier" if said else f"{name!r} has no tier")
        if meaning is not None and meaning.tier not in (None, tier):
            raise ValueError(f"{name!r} is {meaning.tier} in the labels file, its scenario {scenario!r} is {tier}")
        return Label(name, scenario, tier)


def _tier(name: str) -> Tier | None:
    return Tier(name) if name in {each.value for each in Tier} else None


def shipped_labels() -> str:
    return resources.files("extproc.training").joinpath("data", "labels.tsv").read_text(encoding="utf-8")


def label_map(settings: Settings, path: Path | None = None, *, shipped: bool = True) -> LabelMap:
    """With the labels file at `path`; without one, the shipped file, or none."""
    tiers = {name: scenario.tier for name, scenario in settings.scenarios.items()}
    if path is not None:
        return LabelMap(meanings(path.read_text(encoding="utf-8"), path.name), tiers)
    return LabelMap(meanings(shipped_labels(), "labels.tsv") if shipped else (), tiers)


def meanings(text: str, name: str) -> tuple[Meaning, ...]:
    """Of a labels file: `label<TAB>scenario<TAB>tier`, each of the last two may be empty. ConfigError by line."""
    found, problems = [], []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        pattern, scenario, tier, *more = (*(cell.strip() for cell in line.split("\t")), "", "")
        if any(more) or tier not in ("", DROP, *Tier):
            allowed = ", ".join((*Tier, DROP))
            problems.append(Problem(f"{name}.{number}", f"allowed: label, scenario, tier ({allowed})"))
        else:
            found.append(Meaning(pattern, scenario, _tier(tier), tier == DROP))
    if problems:
        raise ConfigError(tuple(problems))
    return tuple(found)


def read(path: Path, labels: LabelMap) -> list[Row]:
    """Rows of a TSV file with a header: `text` and one of `scenario`, `tier`; `source`, `licence` and `label` where
    there are. Without a header: text, then scenario or tier. ConfigError names the first mistakes by line.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            lines = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    except (UnicodeDecodeError, csv.Error) as error:
        raise CannotStart(f"{path} is no TSV file in UTF-8: {error}") from None
    header = [cell.strip().lower() for cell in lines[0]] if lines else []
    columns, first = (header, 1) if "text" in header else (["text", "scenario"], 0)
    found: list[Row] = []
    problems: list[Problem] = []
    for number, cells in enumerate(lines[first:], first + 1):
        if not any(cell.strip() for cell in cells):
            continue
        try:
            row = _row(dict(zip(columns, cells, strict=False)), path.stem, labels)
            found += [] if row is None else [row]
        except ValueError as error:
            problems.append(Problem(f"{path}.{number}", str(error)))
    if problems:
        raise ConfigError(tuple(problems[:MOST_PROBLEMS]))
    return found


def _row(cells: Mapping[str, str], stem: str, labels: LabelMap) -> Row | None:
    said = (cells.get("scenario") or cells.get("tier") or "").strip()
    source = cells.get("source", "").strip() or stem
    text = cells.get("text", "").strip()
    if not text:
        raise ValueError("no text")
    name = cells.get("label", "").strip() or said
    try:
        label = labels.label(f"{source}:{name}", said)
    except ValueError:
        if name:
            raise
        raise ValueError("neither scenario nor tier stands here; columns are parted by tabs") from None
    return None if label is None else Row(text, label, source, cells.get("licence", "").strip())

"""Patterns become texts: a language for utterances that a person writes once and a seed spells out many times.

    # a comment
    @goods: shoes|jacket|a {colour} dress
    =returns_asked
    (can|may) i return (my |){goods}

`@name:` gives the alternatives of a slot, `=label` begins the patterns of a label, `{slot}` and `(a|b)` choose one;
an empty alternative leaves the part out. Parts may hold slots; parentheses do not nest.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping

from msgspec import Struct

from extproc.errors import ConfigError, Problem

_CHOICE = re.compile(r"\(([^()]*)\)|\{(\w+)\}")

MAX_CHOICES = 100
"""Of one text: a slot that names itself would never end."""


class Pattern(Struct, frozen=True):
    """`label` as the file says it."""

    label: str
    text: str


class Patterns(Struct, frozen=True):
    slots: Mapping[str, tuple[str, ...]]
    patterns: tuple[Pattern, ...]


def read(text: str, name: str) -> Patterns:
    """ConfigError with every mistake of the file called `name`, by its line."""
    slots: dict[str, tuple[str, ...]] = {}
    patterns: list[Pattern] = []
    problems: list[Problem] = []
    label, lines = "", {}
    for number, line in enumerate(text.splitlines(), 1):
        at = f"{name}.{number}"
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("@"):
            slot, colon, alternatives = line[1:].partition(":")
            slots[slot.strip()] = tuple(alternatives.strip().split("|"))
            problems += [] if colon else [Problem(at, "allowed: @name: one|two")]
        elif line.startswith("="):
            label = line[1:].strip()
        elif not label:
            problems.append(Problem(at, "a pattern before the first =label"))
        else:
            patterns.append(Pattern(label, line))
            lines[line] = at
    for pattern in patterns:
        problems += [Problem(lines[pattern.text], why) for why in _mistakes(pattern.text, slots)]
    if problems:
        raise ConfigError(tuple(problems))
    return Patterns(slots, tuple(patterns))


def _mistakes(text: str, slots: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    unknown = {slot for _, slot in _CHOICE.findall(text) if slot} - slots.keys()
    if unknown:
        yield f"no slot {', '.join(sorted(unknown))}"
    if re.search(r"[()]", _CHOICE.sub("", text)):
        yield "parentheses do not match, or nest"


def spelled(pattern: Pattern, slots: Mapping[str, tuple[str, ...]], chance: random.Random) -> str:
    """One text of the pattern."""
    text = pattern.text
    for _ in range(MAX_CHOICES):
        choice = _CHOICE.search(text)
        if choice is None:
            break
        part, slot = choice.groups()
        chosen = chance.choice(part.split("|") if part is not None else slots[slot])
        text = text[: choice.start()] + chosen + text[choice.end() :]
    return " ".join(text.split())

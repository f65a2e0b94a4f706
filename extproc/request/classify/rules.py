"""Patterns over the user's text: the first matching rule, in the order of the configuration, decides.

The patterns are a few RE2 sets: a pass each, in time linear in the text, whatever the patterns. The rejected
alternatives: Python's `re` backtracks, so that one request can hold the process for minutes; a pass per pattern
reads a known text forty times; one set of all patterns has an automaton of so many states that a text it has
not seen costs far more (fifty rules, 500 new characters: 100 µs in one set, 53 in two, 32 in four).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import re2

from extproc.errors import ConfigError, Problem
from extproc.model.values import Caller, Classification
from extproc.parameters import Rule, Scenario
from extproc.request.text import plain
from extproc.snapshot import HasText

SOURCE = "rules"

SETS = 3

SET_MEMORY_BYTES = 48 << 20
"""Bound of all automata together. They grow with the variety of texts seen and start over when they are full."""

_ALWAYS = b""
"""A last pattern that every text matches. RE2 reports "nothing matched" and "out of memory" alike, as an
empty answer; with this pattern in the set, an empty answer can only be the latter."""


class Rules:
    """A classifier compiled from the configured rules. Raises `ConfigError` for a scenario nobody defined."""

    def __init__(
        self,
        rules: Sequence[Rule],
        scenarios: Mapping[str, Scenario],
        *,
        default_scenario: str,
        set_memory_bytes: int = SET_MEMORY_BYTES,
    ) -> None:
        _check(rules, scenarios)
        self._verdicts = tuple(_verdict(rule, default_scenario) for rule in rules)
        self._patterns = tuple(_compile(rule.pattern) for rule in rules)
        self._sets = tuple(
            _compile_set(rules[start::SETS], set_memory_bytes // SETS) for start in range(min(SETS, len(rules)))
        )

    def __call__(self, request: HasText, caller: Caller) -> Classification | None:
        first = self._first(_encode(request.text))
        return None if first is None else self._verdicts[first]

    def _first(self, text: bytes) -> int | None:
        """Index of the first rule that matches."""
        first = nobody = len(self._verdicts)
        for start, compiled in enumerate(self._sets):
            matches = _match_set(compiled, text)
            if not matches:
                return self._searched(text)
            # The pattern that always matches is a set's last: alone, it says that no rule does.
            if len(matches) > 1:
                first = min(first, start + SETS * min(matches))
        return first if first < nobody else None

    def _searched(self, text: bytes) -> int | None:
        return next((i for i, pattern in enumerate(self._patterns) if pattern.search(text)), None)


def _check(rules: Sequence[Rule], scenarios: Mapping[str, Scenario]) -> None:
    problems = tuple(
        Problem(f"classify.rules[{i}].scenario", f"{rule.scenario!r} is not one of scenarios")
        for i, rule in enumerate(rules)
        if rule.scenario is not None and rule.scenario not in scenarios
    )
    if problems:
        raise ConfigError(problems)


def _verdict(rule: Rule, default_scenario: str) -> Classification:
    return Classification(
        tier=rule.tier,
        scenario=rule.scenario or default_scenario,
        source=SOURCE,
        rule=rule.name,
        confidence=1.0,
    )


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False  # RE2 would write to stderr, patterns and all
    return options


def _compile(pattern: str) -> Any:
    return re2.compile(pattern.encode(), options=_options())


def _compile_set(rules: Sequence[Rule], memory_bytes: int) -> Any:
    """The set of all patterns, or None where its program alone exceeds the memory."""
    options = _options()
    options.max_mem = memory_bytes
    compiled = re2.Set.SearchSet(options)
    try:
        for rule in rules:
            compiled.Add(rule.pattern.encode())
        compiled.Add(_ALWAYS)
        compiled.Compile()
    except re2.error:
        return None
    return compiled


def _match_set(compiled: Any, text: bytes) -> list[int]:
    """Indices of all matching patterns in no order; empty where the set gave up."""
    if compiled is None:
        return []
    try:
        return compiled.Match(text) or []
    except (re2.error, MemoryError):
        return []


def _encode(text: str) -> bytes:
    """UTF-8, with a question mark for each lone surrogate: JSON can spell one, UTF-8 cannot."""
    return plain(text).encode("utf-8", errors="replace")

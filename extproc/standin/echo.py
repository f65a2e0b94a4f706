"""The text of an answer: one line that says which parameters and decisions arrived."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from extproc.standin.receipt import Received

LENGTH_KEYS = (
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "n_predict",
    "max_new_tokens",
    "request_output_len",
)

MAX_SHOWN_CHARS = 80
"""Longer values are cut in the line; the report has them whole."""

_SHOWN = {
    "temperature": ("temperature",),
    "max_tokens": LENGTH_KEYS,
    "top_p": ("top_p",),
    "top_k": ("top_k",),
    "min_p": ("min_p",),
    "n": ("n",),
    "best_of": ("best_of",),
    "beams": ("num_beams", "beam_width", "use_beam_search"),
    "priority": ("priority",),
}
_PREFIX = "x-llm-"
_FIRST_HEADERS = ("x-llm-tier", "x-llm-scenario", "x-llm-pool")
_PROMPT_KEYS = ("prompt", "messages", "input", "text_input", "content", "system", "instructions")
_MAX_DEPTH = 8
_WORDS = re.compile(r"\S+\s*")


class Echo(Struct, frozen=True):
    """What an answer says and what it is charged. `cut` is set where fewer tokens were granted than said."""

    line: str
    words: tuple[str, ...]
    prompt_tokens: int
    completion_tokens: int
    cut: bool


def compose(received: Received) -> Echo:
    """The answer to one request. The line is always whole: a cut one would hide what arrived."""
    flat = flatten(received.params)
    granted = granted_tokens(flat)
    line = describe(flat, received.headers)
    words = tuple(_WORDS.findall(line))
    cut = granted is not None and granted < len(words)
    return Echo(
        line=line,
        words=words,
        prompt_tokens=prompt_tokens(received.document),
        completion_tokens=granted if granted is not None and cut else len(words),
        cut=cut,
    )


def flatten(params: dict[str, Any]) -> dict[str, Any]:
    """Parameters by name wherever they stood; the top level wins over `parameters` and tensors."""
    flat: dict[str, Any] = {}
    for nested in (params.get("inputs"), params.get("parameters")):
        if isinstance(nested, dict):
            flat |= nested
    return flat | params


def granted_tokens(flat: dict[str, Any]) -> int | None:
    """The smallest length asked for; None where nothing limits it (absent, or llama.cpp's -1)."""
    lengths = [flat.get(key) for key in LENGTH_KEYS]
    return min((n for n in lengths if type(n) is int and n >= 0), default=None)


def describe(flat: dict[str, Any], headers: dict[str, list[str]]) -> str:
    """`stand-in: temperature=0.3 max_tokens=120 tier=strict`, from the body and then from the headers."""
    shown = {label: _first(flat, keys) for label, keys in _SHOWN.items()}
    granted = granted_tokens(flat)
    if granted is not None:
        shown["max_tokens"] = granted
    parts = [f"{label}={_spell(value)}" for label, value in shown.items() if value is not None]
    parts += [_header_part(name, headers[name][-1], shown) for name in _decision_headers(headers)]
    return "stand-in: " + (" ".join(parts) or "no parameters")


def _first(flat: dict[str, Any], keys: tuple[str, ...]) -> Any:
    return next((flat[key] for key in keys if flat.get(key) is not None), None)


def _decision_headers(headers: dict[str, list[str]]) -> list[str]:
    first = [name for name in _FIRST_HEADERS if name in headers]
    return first + [name for name in headers if name.startswith(_PREFIX) and name not in _FIRST_HEADERS]


def _header_part(name: str, value: str, shown: dict[str, Any]) -> str:
    """A header whose short name is a body parameter's keeps its full one."""
    label = name.removeprefix(_PREFIX)
    return f"{name if label in shown else label}={_spell(value)}"


def _spell(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)[:MAX_SHOWN_CHARS]


def prompt_tokens(document: dict[str, Any]) -> int:
    """Words of the prompt, as good as tokens here."""
    return sum(count_words(document[key]) for key in _PROMPT_KEYS if key in document)


def count_words(value: Any, depth: int = 0) -> int:
    """Words in a prompt of any dialect: text, token ids, messages, content parts."""
    if isinstance(value, str):
        return value.count(" ") + 1 if value else 0
    if isinstance(value, int):
        return 1
    if depth == _MAX_DEPTH:
        return 0
    if isinstance(value, list):
        return sum(count_words(item, depth + 1) for item in value)
    if isinstance(value, dict):
        return count_words(value.get("content", value.get("text")), depth + 1)
    return 0

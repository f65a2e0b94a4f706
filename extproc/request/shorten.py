"""The prompt cut to a number of tokens, for a light model: the end of the conversation, and the system message.

Tokens are estimated from bytes of text: the light model's tokenizer is not here. What is kept whole keeps its
bytes; a message that is cut keeps its last words. Shapes that are not understood are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from extproc.model.names import Dialect
from extproc.request.json_object import JsonObject
from extproc.request.text import of_content

SYSTEM_ROLES = ("system", "developer")

SYSTEM_SHARE = 0.5
"""Of the budget at most: a long system message must leave room for the question."""

MAX_CHARS = 1 << 24

_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ANY = msgspec.json.Decoder()


class Cut(Struct, frozen=True):
    """`edits`: new bytes of top-level members. `before`, `after`: estimated tokens of the prompt."""

    edits: Mapping[str, bytes]
    before: int
    after: int


class _Turn(Struct, frozen=True):
    raw: bytes
    role: str
    text: str

    @property
    def size(self) -> int:
        return len(self.text.encode()) if self.text else len(self.raw)


NOTHING = Cut({}, 0, 0)


def cut(root: JsonObject, dialect: Dialect, *, tokens: int, bytes_per_token: float) -> Cut:
    """The edits that leave at most `tokens`; none where it is short enough already."""
    budget = int(tokens * bytes_per_token)
    try:
        edits, before, after = _BY_DIALECT[dialect](root, budget, tokens)
    except (KeyError, msgspec.MsgspecError, RecursionError):
        return NOTHING
    return Cut(edits, round(before / bytes_per_token), round(after / bytes_per_token))


_Found = tuple[dict[str, bytes], int, int]


def _conversation(root: JsonObject, budget: int, key: str, system_key: str | None) -> _Found:
    turns = [_turn(bytes(raw)) for raw in _LIST.decode(root.values[key])]
    apart = root.raw(system_key) if system_key is not None else None
    apart_text = of_content(apart, MAX_CHARS) if apart not in (None, b"null") else ""
    before = sum(turn.size for turn in turns) + len(apart_text.encode())
    if before <= budget:
        return {}, before, before
    edits: dict[str, bytes] = {}
    left = budget
    if system_key is not None and apart_text:
        kept_text = head(apart_text, int(budget * SYSTEM_SHARE))
        left -= len(kept_text.encode())
        edits[system_key] = msgspec.json.encode(kept_text)
    first = [turn for turn in turns if turn.role in SYSTEM_ROLES]
    system = _system(first, left)
    left -= sum(turn.size for turn in system)
    kept = [*system, *_last([turn for turn in turns if turn.role not in SYSTEM_ROLES], left)]
    if not kept:
        return {}, before, before
    edits[key] = b"[" + b",".join(turn.raw for turn in kept) + b"]"
    return edits, before, budget - left + sum(turn.size for turn in kept[len(system) :])


def _system(turns: Sequence[_Turn], budget: int) -> list[_Turn]:
    """The first one, from its beginning."""
    most = int(budget * SYSTEM_SHARE)
    first = [turn for turn in turns if turn.text][:1]
    return [turn if turn.size <= most else _with_text(turn, head(turn.text, most)) for turn in first]


def _last(turns: Sequence[_Turn], budget: int) -> list[_Turn]:
    """From the right as many as fit whole, and the end of the one that does not."""
    kept: list[_Turn] = []
    for turn in reversed(turns):
        if turn.size > budget:
            if turn.text and budget > 0 and turn.role != "tool":
                kept.append(_with_text(turn, tail(turn.text, budget)))
            break
        kept.append(turn)
        budget -= turn.size
    kept = kept[::-1] or [_at_least(turn, budget) for turn in turns[-1:]]
    # Without the call it answers, a tool's answer is refused; Anthropic begins with the user.
    while len(kept) > 1 and kept[0].role != "user":
        kept.pop(0)
    return kept


def _at_least(turn: _Turn, budget: int) -> _Turn:
    """The last one, however little room there is: no conversation is empty."""
    return _with_text(turn, tail(turn.text, max(4, budget))) if turn.text else turn


def _turn(raw: bytes) -> _Turn:
    members = _OBJECT.decode(raw)
    role = _ANY.decode(members["role"]) if "role" in members else ""
    text = of_content(bytes(members["content"]), MAX_CHARS).strip("\n") if "content" in members else ""
    return _Turn(raw, role if isinstance(role, str) else "", text)


def _with_text(turn: _Turn, text: str) -> _Turn:
    members: dict[str, Any] = dict(_OBJECT.decode(turn.raw))
    members["content"] = msgspec.Raw(msgspec.json.encode(text))
    return _Turn(msgspec.json.encode(members), turn.role, text)


def tail(text: str, size: int) -> str:
    """The end of it, at most `size` bytes of UTF-8, whole characters."""
    return text.encode()[-size:].decode(errors="ignore") if size > 0 else ""


def head(text: str, size: int) -> str:
    """The beginning of it, at most `size` bytes of UTF-8, whole characters."""
    return text.encode()[: max(0, size)].decode(errors="ignore")


def _prompt(root: JsonObject, budget: int, tokens: int, key: str) -> _Found:
    value = _ANY.decode(root.values[key])
    shorter, before, after = _shorter(value, budget, tokens)
    return ({} if before == after else {key: msgspec.json.encode(shorter)}), before, after


def _shorter(value: Any, budget: int, tokens: int) -> tuple[Any, int, int]:
    """A text, token ids, or a list of these, each cut by itself; (value, bytes before, bytes after)."""
    if isinstance(value, str):
        size = len(value.encode())
        cut_text = value if size <= budget else tail(value, budget)
        return cut_text, size, min(size, len(cut_text.encode()))
    if isinstance(value, list) and value and all(type(each) is int for each in value):
        per_token = budget / tokens
        return value[-tokens:], round(len(value) * per_token), round(min(len(value), tokens) * per_token)
    if isinstance(value, list):
        parts = [_shorter(each, budget, tokens) for each in value]
        return [part[0] for part in parts], sum(part[1] for part in parts), sum(part[2] for part in parts)
    return value, 0, 0


def _responses(root: JsonObject, budget: int, tokens: int) -> _Found:
    if root.values["input"][:1] == b"[":
        return _conversation(root, budget, "input", "instructions")
    return _prompt(root, budget, tokens, "input")


_BY_DIALECT: dict[Dialect, Callable[[JsonObject, int, int], _Found]] = {
    Dialect.OPENAI_CHAT: lambda root, budget, _: _conversation(root, budget, "messages", None),
    Dialect.ANTHROPIC_MESSAGES: lambda root, budget, _: _conversation(root, budget, "messages", "system"),
    Dialect.OPENAI_RESPONSES: _responses,
    Dialect.OPENAI_COMPLETIONS: lambda root, budget, tokens: _prompt(root, budget, tokens, "prompt"),
    Dialect.LLAMACPP_COMPLETION: lambda root, budget, tokens: _prompt(root, budget, tokens, "prompt"),
    Dialect.TRITON_GENERATE: lambda root, budget, tokens: _prompt(root, budget, tokens, "text_input"),
}

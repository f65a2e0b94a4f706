"""The user's text in a request: the last user turn, cut to a bound. Odd shapes give less text, no error."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import msgspec

from extproc.errors import ClientFault

_EMPTY = msgspec.Raw(b"null")


class _Turn(msgspec.Struct):
    role: Any = ""
    content: msgspec.Raw = _EMPTY


class _Part(msgspec.Struct):
    type: Any = ""
    text: Any = ""


_TURNS = msgspec.json.Decoder(list[msgspec.Raw])
_TURN = msgspec.json.Decoder(_Turn)
_PARTS = msgspec.json.Decoder(list[_Part | str])
_STRING = msgspec.json.Decoder(str)
_ANY = msgspec.json.Decoder()


_NO_WIDTH = dict.fromkeys((0x00AD, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF))
_DISGUISED = re.compile("[\\u00ad\\u200b-\\u200d\\u2060\\ufeff\\uff21-\\uff5a\\U0001d400-\\U0001d7ff]")

MAX_ITEMS = 200_000
MAX_SCALARS = 1_000_000
_SCALAR_ENDS = (*(b"%d," % digit for digit in range(10)), b"true,", b"false,", b"null,")


def check_items(raw: bytes, what: str) -> None:
    """ClientFault 400 for a list that takes too long to read: requests of others wait meanwhile.

    Ends of items are counted, which is quick and never less than the items; long text without structure passes.
    """
    if raw.count(b",") <= MAX_ITEMS:
        return
    ends = raw.count(b"],") + raw.count(b"},") + raw.count(b'",')
    if ends > MAX_ITEMS or sum(map(raw.count, _SCALAR_ENDS)) > MAX_SCALARS:
        raise ClientFault(400, "too_many_items", f"'{what}' has more than {MAX_ITEMS} items.", param=what)


def plain(text: str) -> str:
    """The text as a person reads it: full-width and mathematical letters as plain ones, nothing of no width."""
    if text.isascii() or not _DISGUISED.search(text):
        return text
    return unicodedata.normalize("NFKC", text.translate(_NO_WIDTH))


def bounded(text: str, max_chars: int) -> str:
    """The text, or its two ends where it is longer: what a request is about stands first or last."""
    if len(text) <= max_chars:
        return text
    half = max_chars // 2
    return f"{text[:half]}\n{text[-half:]}"


def of_messages(raw: bytes | None, max_chars: int) -> str:
    """Text of the last turn whose role is user, of chat `messages` or response `input` items."""
    if raw is None:
        return ""
    if len(raw) > MAX_ITEMS:
        check_items(raw, "messages")
    try:
        for each in reversed(_TURNS.decode(raw)):
            turn = _TURN.decode(each)
            # A turn without text says nothing; what the user said before still stands.
            if is_user(turn.role) and (text := of_content(bytes(turn.content), max_chars)).strip():
                return text
    except (msgspec.MsgspecError, RecursionError):
        return _of_odd_messages(raw, max_chars)
    return ""


def is_user(role: object) -> bool:
    return isinstance(role, str) and role.casefold() == "user"


def _of_odd_messages(raw: bytes, max_chars: int) -> str:
    """The same where something in the list is no turn."""
    turns = _anything(raw)
    users = [t for t in turns if isinstance(t, dict) and is_user(t.get("role"))] if isinstance(turns, list) else []
    return of_content(msgspec.json.encode(users[-1].get("content")), max_chars) if users else ""


def of_content(raw: bytes, max_chars: int) -> str:
    """Text of one content value: a string, or a list of parts of which only text ones count."""
    try:
        if raw[:1] == b'"':
            return bounded(_STRING.decode(raw), max_chars)
        parts: list[Any] = _PARTS.decode(raw) if raw[:1] == b"[" else []
    except (msgspec.MsgspecError, RecursionError):
        found = _anything(raw)
        parts = found if isinstance(found, list) else []
    return bounded("\n".join(text for part in parts if isinstance(text := _text_of(part), str)), max_chars)


def _text_of(part: object) -> object:
    if isinstance(part, _Part):
        return part.text
    return part.get("text") if isinstance(part, dict) else part


def _anything(raw: bytes) -> Any:
    """Any JSON; None where it can't be read."""
    try:
        return _ANY.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return None


def of_prompt(raw: bytes | None, max_chars: int) -> str:
    """Text of a completion prompt: a string, llama.cpp's `prompt_string`, a list of these; token ids say none."""
    if raw is None:
        return ""
    if raw[:1] == b'"':
        return of_content(raw, max_chars)
    if raw[:1] not in (b"[", b"{"):
        return ""
    if len(raw) > MAX_ITEMS:
        check_items(raw, "prompt")
    prompts = _anything(raw)
    listed = prompts if isinstance(prompts, list) else [prompts]
    texts = (prompt.get("prompt_string") if isinstance(prompt, dict) else prompt for prompt in listed)
    return bounded("\n".join(text for text in texts if isinstance(text, str)), max_chars)

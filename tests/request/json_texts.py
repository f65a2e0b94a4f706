"""JSON objects as bytes whose every piece is known: generated for tests, and read back without any help.

The reader is the standard library's scanner, so that nothing under test vouches for itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, NamedTuple

from hypothesis import strategies as st

EXAMPLES = 10_000 if os.environ.get("CI") == "true" else 300

_SCAN = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
_SPACE = " \t\n\r"


class Member(NamedTuple):
    """`spelled` is the key as it stands in the text, with its quotes."""

    key: str
    spelled: bytes
    value: bytes


class Text(NamedTuple):
    """An object, and the members it was made of."""

    body: bytes
    members: tuple[Member, ...]

    @property
    def order(self) -> list[str]:
        """Keys in the order of their first occurrence."""
        return list(dict.fromkeys(member.key for member in self.members))

    @property
    def last(self) -> dict[str, bytes]:
        """The value that counts for each key: its last one."""
        return {member.key: member.value for member in self.members}

    @property
    def repeats(self) -> bool:
        return len(self.members) > len(self.last)


def read(body: bytes) -> list[Member]:
    """The members of an object, each value with its exact bytes."""
    text = body.decode()
    members: list[Member] = []
    at = _skip(text, 0)
    assert text[at] == "{"
    at = _skip(text, at + 1)
    while text[at] != "}":
        assert text[at] == '"'
        key, end = scanstring(text, at + 1, True)
        spelled = text[at:end]
        at = _skip(text, end)
        assert text[at] == ":"
        start = _skip(text, at + 1)
        _, end = _SCAN(text, start)
        members.append(Member(key, spelled.encode(), text[start:end].encode()))
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
            assert text[at] == '"', "a comma is followed by a member"
    assert _skip(text, at + 1) == len(text), "nothing stands behind the object"
    return members


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def plain(text: str) -> bytes:
    return json.dumps(text, ensure_ascii=False).encode()


def escaped(text: str) -> bytes:
    """Every character as an escape, those above the first plane as surrogate pairs."""
    units = text.encode("utf-16-be")
    pairs = (units[i : i + 2].hex() for i in range(0, len(units), 2))
    return b'"' + "".join(f"\\u{pair}" for pair in pairs).encode() + b'"'


def half_escaped(text: str) -> bytes:
    return json.dumps(text).encode()


SPELLINGS: Sequence[Callable[[str], bytes]] = (plain, plain, escaped, half_escaped)

NUMBERS = (
    b"0 -0 -0.0 0.1000 0.5 1E2 1e+2 1e-7 1E400 -1e400 9007199254740993 -9007199254740993 12345678901234567890123 "
    b"3.141592653589793238462643 1.0 1.50 0e0 100 1 10 1e5 0.0000001"
).split()
WORDS = (b"true", b"false", b"null", b'""', b"[]", b"{}", b"[ ]", b"{\n}")
STRINGS = (
    rb'"\ud83d\ude00"',
    rb'"\/\b\f\n\r\t\"\\"',
    '"😀 é 中文"'.encode(),
    b'"\\u0000"',
    b'"}{][,:\\"\\\\"',
    '"\u2028\x7f"'.encode(),
)
NESTED = (
    b'{"a":{"a":{"a":1E2}},"temperature":9}',
    b'[1, [2,[3 , [-0.0]]], {"max_tokens" : 5}]',
    b"[" * 60 + b"1" + b"]" * 60,
    b'{"x":' * 40 + b'"deep"' + b"}" * 40,
    b'{"a":1,"a":2, "\\u0061":3}',
    b'[{"b" :\t[ ]},\r\n1.10,"]"]',
)

_texts = st.text(max_size=6)
_strings = st.builds(lambda spell, text: spell(text), st.sampled_from(SPELLINGS), _texts)
VALUES = st.one_of(st.sampled_from(NUMBERS), st.sampled_from(WORDS + STRINGS), st.sampled_from(NESTED), _strings)
SPACES = st.sampled_from((b"", b"", b"", b" ", b"\n\t", b"\r\n  "))


def members(keys: st.SearchStrategy[str], values: st.SearchStrategy[bytes] = VALUES) -> st.SearchStrategy[Member]:
    return st.builds(
        lambda key, spell, value: Member(key, spell(key), value), keys, st.sampled_from(SPELLINGS), values
    )


def rendered(found: Sequence[Member], spaces: Sequence[bytes]) -> Text:
    """The object of these members, `spaces` taking turns between its pieces."""
    turn = 0

    def space() -> bytes:
        nonlocal turn
        turn += 1
        return spaces[turn % len(spaces)]

    pieces = [space(), b"{", space()]
    for index, member in enumerate(found):
        if index:
            pieces += [b",", space()]
        pieces += [member.spelled, space(), b":", space(), member.value, space()]
    pieces += [b"}", space()]
    return Text(b"".join(pieces), tuple(found))


def texts(member: st.SearchStrategy[Member], max_size: int = 8) -> st.SearchStrategy[Text]:
    return st.builds(rendered, st.lists(member, max_size=max_size), st.lists(SPACES, min_size=1, max_size=5))


def value_of(raw: bytes) -> Any:
    return json.loads(raw)

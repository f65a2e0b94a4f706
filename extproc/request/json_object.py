"""A JSON object whose values keep their bytes.

The object is decoded once to spans of its top level; an edit replaces, removes or appends members and
copies everything else. The rejected alternative, decode and encode, loses `1E2`, `-0.0`, 2^53+1, spacing
and key escapes. A repeated key is settled at once, last one winning, so that no engine with another
habit (RapidJSON takes the first) sees a value that was not judged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from extproc.errors import ClientFault
from extproc.model.values import ABSENT, Missing, Scalar

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_KEY = rb'[ \t\n\r]*("[^"\\]*+(?:\\.[^"\\]*+)*+")[ \t\n\r]*:[ \t\n\r]*'
_FIRST = re.compile(_KEY, re.DOTALL)
_NEXT = re.compile(rb"[ \t\n\r]*+(?:," + _KEY + rb"|\})", re.DOTALL)
_BOM = b"\xef\xbb\xbf"

Edit = bytes | Literal[Missing.ABSENT]
"""New bytes of a member's value, or ABSENT to remove the member."""


Span = tuple[int, int, int]
"""A member in the body: its key with quotes starts at [0], its value is [1]:[2]."""


class JsonObject:
    """A parsed object. `body` has no repeated keys; `rewritten` tells whether it had."""

    __slots__ = ("_members", "body", "rewritten", "values")

    def __init__(self, body: bytes, values: dict[str, msgspec.Raw]) -> None:
        self.values = values
        self.body = body
        members = _walk(body, values)
        self.rewritten = members is None
        if members is None:
            self.body = _canonical(values)
            members = _walk(self.body, values)
            assert members is not None, "a canonical object has no repeated keys"
        self._members = members

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def raw(self, key: str) -> bytes | None:
        """The value's bytes; None when the key is absent."""
        span = self._members.get(key)
        return self.body[span[1] : span[2]] if span else None

    def edited(self, edits: Mapping[str, Edit]) -> bytes:
        """The body with these members replaced, removed or appended; all other bytes as they were."""
        if not edits:
            return self.body
        removed = {key for key, edit in edits.items() if edit is ABSENT and key in self._members}
        if removed:
            return self._rebuilt(edits, removed)
        pieces: list[bytes] = []
        at = 0
        for key in sorted((key for key in edits if key in self._members), key=self._start):
            _, value, value_end = self._members[key]
            pieces += (self.body[at:value], edits[key])  # type: ignore[arg-type]
            at = value_end
        end = self._last_end()
        pieces.append(self.body[at:end])
        pieces += _appended(self._new(edits), first=not self._members)
        pieces.append(self.body[end:])
        return b"".join(pieces)

    def _rebuilt(self, edits: Mapping[str, Edit], removed: set[str]) -> bytes:
        body = self.body
        previous: int | None = None
        pieces: list[bytes] = []
        kept = 0
        for key, (start, value, end) in self._members.items():
            if key not in removed:
                separator = body[previous:start] if previous is not None and kept else b""
                edit = edits.get(key, body[value:end])
                assert edit is not ABSENT
                pieces += (separator, body[start:value], edit)
                kept += 1
            previous = end
        first = next(iter(self._members.values()))
        appended = _appended(self._new(edits), first=kept == 0)
        return b"".join((body[: first[0]], *pieces, *appended, body[self._last_end() :]))

    def _new(self, edits: Mapping[str, Edit]) -> dict[str, bytes]:
        return {key: edit for key, edit in edits.items() if key not in self._members and edit is not ABSENT}

    def _start(self, key: str) -> int:
        return self._members[key][0]

    def _last_end(self) -> int:
        """Where the last member ends; right behind the brace in an empty object."""
        if not self._members:
            return self.body.index(b"{") + 1
        return next(reversed(self._members.values()))[2]


def parse(body: bytes, *, max_keys: int, what: str = "body") -> JsonObject:
    """The object in `body`; ClientFault 400 says what is wrong and where, never what it contains."""
    try:
        body.decode("utf-8")
        values = _MEMBERS.decode(body)
    except UnicodeDecodeError as error:
        raise _malformed(what, f"not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise _malformed(what, "nested too deeply") from None
    except msgspec.ValidationError:
        raise _malformed(what, "not a JSON object") from None
    except msgspec.DecodeError as error:
        raise _malformed(what, _position(body, str(error))) from None
    if len(values) > max_keys:
        raise ClientFault(400, "too_many_keys", f"The {what} has more than {max_keys} keys.")
    return JsonObject(body, values)


def scalar(raw: bytes) -> Scalar | None:
    """A JSON scalar as a value; None for null. Integral floats read as int; ValueError for the rest."""
    first = raw[:1]
    if first == b'"':
        return msgspec.json.decode(raw, type=str)
    if raw in (b"true", b"false"):
        return raw == b"true"
    if raw == b"null":
        return None
    if first in (b"[", b"{"):
        raise ValueError("not a scalar")
    return number(raw)


def number(raw: bytes) -> int | float:
    """A JSON number. Beyond 15 digits a float is near enough: such values are only compared with limits."""
    if len(raw) <= 15 and b"." not in raw and b"e" not in raw and b"E" not in raw:
        return int(raw)
    value = float(raw)
    return int(value) if value.is_integer() and abs(value) < 1e15 and raw[:2] != b"-0" else value


def encode(value: Scalar) -> bytes:
    return msgspec.json.encode(value)


def _walk(body: bytes, values: dict[str, msgspec.Raw]) -> dict[str, Span] | None:
    """The members' spans, or None where a key is repeated.

    `values` holds the last value of each key. Where that value's bytes stand behind a key and a comma or
    brace follows, they are this key's value: of two JSON values that start at one place only a number can
    be a prefix of the other, and then a digit follows.
    """
    members: dict[str, Span] = {}
    found = _FIRST.match(body, body.index(b"{") + 1)
    while found is not None and (quoted := found[1]) is not None:
        name = _key_text(quoted)
        raw = bytes(values[name])
        start = found.end()
        end = start + len(raw)
        if name in members or not body.startswith(raw, start):
            return None
        members[name] = (found.start(1), start, end)
        found = _NEXT.match(body, end)
        if found is None:
            return None
    return members if len(members) == len(values) else None


def _key_text(quoted: bytes) -> str:
    if b"\\" in quoted:
        return msgspec.json.decode(quoted, type=str)
    return quoted[1:-1].decode()


def _canonical(values: Mapping[str, msgspec.Raw]) -> bytes:
    members = (msgspec.json.encode(key) + b":" + bytes(raw) for key, raw in values.items())
    return b"{" + b",".join(members) + b"}"


def _appended(new: Mapping[str, bytes], *, first: bool) -> list[bytes]:
    pieces: list[bytes] = []
    for key, value in new.items():
        pieces += (b"" if first else b",", msgspec.json.encode(key), b":", value)
        first = False
    return pieces


def _malformed(what: str, why: str) -> ClientFault:
    return ClientFault(400, "invalid_json", f"The {what} is not valid JSON: {why}.")


def _position(body: bytes, message: str) -> str:
    if not body.strip():
        return "it is empty"
    if body.startswith(_BOM):
        return "it starts with a byte-order mark"
    return message.removeprefix("JSON is malformed: ").rstrip(".")

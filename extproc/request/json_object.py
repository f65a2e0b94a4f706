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
_KEY = re.compile(rb'[ \t\n\r]*("[^"\\]*+(?:\\.[^"\\]*+)*+")[ \t\n\r]*:[ \t\n\r]*', re.DOTALL)
_AFTER = re.compile(rb"[ \t\n\r]*([,}])")
_BOM = b"\xef\xbb\xbf"

Edit = bytes | Literal[Missing.ABSENT]
"""New bytes of a member's value, or ABSENT to remove the member."""


class Member(msgspec.Struct, frozen=True, gc=False):
    """Spans in the body: the key with its quotes starts at `start`, the value is [value, end)."""

    start: int
    value: int
    end: int


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
        member = self._members.get(key)
        return self.body[member.value : member.end] if member else None

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
            member = self._members[key]
            pieces += (self.body[at : member.value], edits[key])  # type: ignore[arg-type]
            at = member.end
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
        for key, member in self._members.items():
            if key not in removed:
                separator = body[previous : member.start] if previous is not None and kept else b""
                edit = edits.get(key, body[member.value : member.end])
                assert edit is not ABSENT
                pieces += (separator, body[member.start : member.value], edit)
                kept += 1
            previous = member.end
        first = next(iter(self._members.values()))
        appended = _appended(self._new(edits), first=kept == 0)
        return b"".join((body[: first.start], *pieces, *appended, body[self._last_end() :]))

    def _new(self, edits: Mapping[str, Edit]) -> dict[str, bytes]:
        return {key: edit for key, edit in edits.items() if key not in self._members and edit is not ABSENT}

    def _start(self, key: str) -> int:
        return self._members[key].start

    def _last_end(self) -> int:
        """Where the last member ends; right behind the brace in an empty object."""
        if not self._members:
            return self.body.index(b"{") + 1
        return next(reversed(self._members.values())).end


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


def _walk(body: bytes, values: dict[str, msgspec.Raw]) -> dict[str, Member] | None:
    """The members' spans, or None where a key is repeated.

    `values` holds the last value of each key. Where that value's bytes stand behind a key and a comma or
    brace follows, they are this key's value: of two JSON values that start at one place only a number can
    be a prefix of the other, and then a digit follows.
    """
    members: dict[str, Member] = {}
    at = body.index(b"{") + 1
    for _ in range(len(values)):
        key = _KEY.match(body, at)
        if key is None:
            return None
        name = _key_text(key[1])
        raw = bytes(values[name])
        start = key.end()
        at = start + len(raw)
        after = _AFTER.match(body, at)
        if name in members or after is None or not body.startswith(raw, start):
            return None
        members[name] = Member(key.start(1), start, at)
        at = after.end()
        if after[1] == b"}":
            return members if len(members) == len(values) else None
    return members if not values else None


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

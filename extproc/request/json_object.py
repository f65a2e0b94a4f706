"""A JSON object whose values keep their bytes.

The object is decoded once to spans of its top level; an edit replaces, removes or appends members and
copies everything else. The rejected alternative, decode and encode, loses `1E2`, `-0.0`, 2^53+1, spacing
and key escapes. A repeated key is settled at once, last one winning, so that no engine with another
habit (RapidJSON takes the first) sees a value that was not judged.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

import msgspec

from extproc.errors import ClientFault
from extproc.model.values import ABSENT, Missing, Scalar

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_KEY = rb'[ \t\n\r]*("[^"\\]*+(?:\\.[^"\\]*+)*+")[ \t\n\r]*:[ \t\n\r]*'
_FIRST = re.compile(_KEY, re.DOTALL)
_NEXT = re.compile(rb"[ \t\n\r]*+(?:," + _KEY + rb"|\})", re.DOTALL)
_HALF = re.compile(
    rb"\\u[dD][89aAbB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89aAbB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)
UTF8_PIECE = 1 << 16
MAX_REMEMBERED_KEYS = 32
MAX_REMEMBERED_CHARS = 512
MAX_TEMPLATES = 16
MAX_TEMPLATE_PIECES = 64
_BOM = b"\xef\xbb\xbf"

Edit = bytes | Literal[Missing.ABSENT]
"""New bytes of a member's value, or ABSENT to remove the member."""


Span = tuple[int, int, int]
"""A member in the body: its key with quotes starts at [0], its value is [1]:[2]."""


class Keys(msgspec.Struct, frozen=True):
    """The keys of objects that have the same ones, as common encoders write them: compact, or spaced like Python.

    `overhead` is the length of a compact object without its values.
    """

    compact: tuple[bytes, ...]
    spaced: tuple[bytes, ...]
    overhead: int


class Patch:
    """Edits of one object, and what they make of each set of keys: constant bytes, and indices of values."""

    __slots__ = ("edits", "templates")

    def __init__(self, edits: Mapping[str, Edit]) -> None:
        self.edits = edits
        self.templates: dict[tuple[bytes, ...], tuple[bytes | int, ...]] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Patch) and self.edits == other.edits

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Patch({self.edits!r})"


class JsonObject:
    """A parsed object. `values` are the members' bytes; `body` has no repeated keys, `rewritten` says if it had.

    A body as common encoders write it is edited by joining its members anew, any other by spans.
    """

    __slots__ = ("_quoted", "_separator", "_spans", "body", "rewritten", "values")

    def __init__(self, body: bytes, values: dict[str, bytes]) -> None:
        self.body = body
        self.values = values
        self.rewritten = False
        self._spans: dict[str, Span] = {}
        keys = _keys(values)
        # No object with these values is shorter than the compact one, so one of its length is the compact one: it
        # has no room for another member, an escape in a key or a space. Nearly every body is found out here.
        self._separator, self._quoted = b",", keys.compact
        if keys.overhead + sum(map(len, values.values())) == len(body):
            return
        self._separator, self._quoted = b", ", keys.spaced
        if not self._is_spaced():
            self._find_members()

    def _is_spaced(self) -> bool:
        """Whether the spaced layout gives exactly this body, which also proves that no key is repeated."""
        body, separator, at = self.body, b"{", 0
        for quoted, raw in zip(self._quoted, self.values.values(), strict=True):
            if not (body.startswith(separator, at) and body.startswith(quoted, at := at + len(separator))):
                return False
            if not body.startswith(raw, at := at + len(quoted)):
                return False
            at += len(raw)
            separator = self._separator
        return body[at:] == b"}"

    def _find_members(self) -> None:
        spans = _walk(self.body, self.values)
        if spans is not None:
            self._spans = spans
            self._quoted = ()
            return
        self.rewritten = True
        self._separator = b","
        self._quoted = tuple(_quoted(key) for key in self.values)
        self.body = self._joined({}, {})

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def raw(self, key: str) -> bytes | None:
        """The value's bytes; None when the key is absent."""
        return self.values.get(key)

    def edited(self, edits: Mapping[str, Edit]) -> bytes:
        """The body with these members replaced, removed or appended; all other bytes as they were."""
        if not edits:
            return self.body
        new = {key: edit for key, edit in edits.items() if key not in self.values and edit is not ABSENT}
        if self._spans:
            return self._spliced(edits, new)
        if not self.values and self.body != b"{}":
            return self.body.replace(b"{", self._joined({}, new)[:-1], 1)
        return self._joined(edits, new)

    def patched(self, patch: Patch) -> bytes:
        """`edited`, by a template that is made once for objects with the same keys in the same layout."""
        if not patch.edits:
            return self.body
        if self._spans or not self.values:
            return self.edited(patch.edits)
        template = patch.templates.get(self._quoted)
        if template is None:
            template = self._template(patch.edits)
            if len(patch.templates) < MAX_TEMPLATES and len(template) <= MAX_TEMPLATE_PIECES:
                patch.templates[self._quoted] = template
        values = list(self.values.values())
        return b"".join([values[each] if isinstance(each, int) else each for each in template])

    def _template(self, edits: Mapping[str, Edit]) -> tuple[bytes | int, ...]:
        """What `edited` makes, with the index of each value that stays in place of the value."""
        template: list[bytes | int] = []
        constant, separator = b"{", b""
        for index, (quoted, key) in enumerate(zip(self._quoted, self.values, strict=True)):
            edit = edits.get(key)
            if edit is ABSENT:
                continue
            constant += separator + quoted + (edit or b"")
            separator = self._separator
            if edit is None:
                template += (constant, index)
                constant = b""
        for key, raw in edits.items():
            if key not in self.values and raw is not ABSENT:
                constant += separator + _quoted(key) + raw
                separator = self._separator
        return (*template, constant + b"}")

    def _joined(self, edits: Mapping[str, Edit], new: Mapping[str, bytes]) -> bytes:
        separator = self._separator
        pieces: list[bytes] = []
        for quoted, (key, raw) in zip(self._quoted, self.values.items(), strict=True):
            if (edit := edits.get(key, raw)) is not ABSENT:
                pieces += (separator, quoted, edit)
        for key, raw in new.items():
            pieces += (separator, _quoted(key), raw)
        pieces[:1] = [b"{"]
        pieces.append(b"}")
        return b"".join(pieces)

    def _spliced(self, edits: Mapping[str, Edit], new: Mapping[str, bytes]) -> bytes:
        body, pieces = self.body, list[bytes]()
        previous: int | None = None
        for key, (start, value, end) in self._spans.items():
            edit = edits.get(key, self.values[key])
            if edit is not ABSENT:
                separator = body[previous:start] if previous is not None and pieces else b""
                pieces += (separator, body[start:value], edit)
            previous = end
        for key, raw in new.items():
            pieces += (b"," if pieces else b"", _quoted(key), raw)
        head = next(iter(self._spans.values()))[0]
        return b"".join((body[:head], *pieces, body[previous:]))


def _keys(values: Mapping[str, bytes]) -> Keys:
    keys = tuple(values)
    small = len(keys) <= MAX_REMEMBERED_KEYS and sum(map(len, keys)) <= MAX_REMEMBERED_CHARS
    return _remembered_keys(keys) if small else _remembered_keys.__wrapped__(keys)


@lru_cache(maxsize=1024)
def _remembered_keys(keys: tuple[str, ...]) -> Keys:
    """A key that needs escapes comes out wrong here, and too short: no body equals it."""
    compact = tuple([b'"%b":' % key.encode() for key in keys])
    overhead = 2 + sum(map(len, compact)) + max(0, len(keys) - 1)
    return Keys(compact, tuple([quoted + b" " for quoted in compact]), overhead)


def _quoted(key: str) -> bytes:
    return msgspec.json.encode(key) + b":"


def parse(body: bytes, *, max_keys: int, what: str = "body") -> JsonObject:
    """The object in `body`; ClientFault 400 says what is wrong and where, never what it contains."""
    try:
        check_utf8(body)
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
    return JsonObject(body, {key: bytes(raw) for key, raw in values.items()})


def check_utf8(body: bytes) -> None:
    """UnicodeDecodeError where the body is no UTF-8. In pieces: decoding all of it would build all of its text."""
    if body.isascii():
        return
    if len(body) <= UTF8_PIECE:
        codecs.utf_8_decode(body, "strict", True)
        return
    view, at = memoryview(body), 0
    while at < len(view):
        last = at + UTF8_PIECE >= len(view)
        try:
            at += codecs.utf_8_decode(view[at : at + UTF8_PIECE], "strict", last)[1]
        except UnicodeDecodeError as error:
            error.start += at
            raise


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


def _walk(body: bytes, values: dict[str, bytes]) -> dict[str, Span] | None:
    """The members' spans, or None where a key is repeated.

    `values` holds the last value of each key. Where that value's bytes stand behind a key and a comma or
    brace follows, they are this key's value: of two JSON values that start at one place only a number can
    be a prefix of the other, and then a digit follows.
    """
    spans: dict[str, Span] = {}
    found = _FIRST.match(body, body.index(b"{") + 1)
    while found is not None and (quoted := found[1]) is not None:
        name = _key_text(quoted)
        raw = values[name]
        start = found.end()
        end = start + len(raw)
        if name in spans or not body.startswith(raw, start):
            return None
        spans[name] = (found.start(1), start, end)
        found = _NEXT.match(body, end)
        if found is None:
            return None
    return spans if len(spans) == len(values) else None


def _key_text(quoted: bytes) -> str:
    if b"\\" in quoted:
        return msgspec.json.decode(quoted, type=str)
    return quoted[1:-1].decode()


def _malformed(what: str, why: str) -> ClientFault:
    return ClientFault(400, "invalid_json", f"The {what} is not valid JSON: {why}.")


def _position(body: bytes, message: str) -> str:
    if not body.strip():
        return "it is empty"
    if body.startswith(_BOM):
        return "it starts with a byte-order mark"
    if _HALF.search(body):
        return "an escape names half a character, a surrogate without its other half"
    return message.removeprefix("JSON is malformed: ").rstrip(".")

"""A body as a document: where each rule-named field stands in it, and how changes are written back.

Most formats are one JSON object, Triton's generate nests a second one (`parameters`), so a document is a
root and its nested objects, and an occurrence names its place. Triton's infer has its own document.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Protocol

from msgspec import Struct

from extproc.errors import ClientFault
from extproc.model.names import Dialect, Engine, Field
from extproc.model.values import ABSENT, Change, InferenceRequest, Scalar, Target, Value
from extproc.registry import TritonRules
from extproc.request.headers import Headers
from extproc.request.json_object import Edit, JsonObject, Patch, encode, number, parse, scalar
from extproc.request.shorten import Cut, cut

NO_MORE: Mapping[str, bytes] = {}
MAX_MODEL_CHARS = 512
ROOT = ""
NO_NUMBER = "?"
MAX_SIGNATURE_BYTES = 256
"""Longer ones are odd, and what is remembered must stay small."""

_LARGEST = frozenset({Field.TEMPERATURE, Field.TOP_P, Field.BEAMS, Field.N, Field.BEST_OF})
_COUNTS = frozenset({Field.BEAMS, Field.N, Field.BEST_OF})
_HELD_IN_QUOTED = (Field.TEMPERATURE, Field.TOP_P)


class Reading(Struct, frozen=True):
    """What a format is told when it reads: bounds, and where this engine's models keep things."""

    target: Target
    headers: Headers
    max_keys: int
    max_chars: int
    triton: Callable[[str], TritonRules]


class Writing(Struct, frozen=True):
    """Where the request goes, so that fields are spelled as that engine reads them."""

    engine: Engine
    triton: TritonRules


class Written(Struct, frozen=True):
    body: bytes
    headers: tuple[tuple[str, bytes], ...] = ()


class Document(Protocol):
    """One body. Reading is cheap until `request` is asked for: what follows from equal bodies is remembered."""

    @property
    def text(self) -> str: ...

    @property
    def signature(self) -> Hashable | None:
        """All that rules can see of the body but its text; None where that is not worth remembering."""
        ...

    @property
    def request(self) -> InferenceRequest:
        """The body as values; ClientFault 400 for one that cannot be."""
        ...

    def respells(self, engine: Engine) -> bool:
        """Whether the length keys must change even where the value stays."""
        ...

    def edits(self, changes: Iterable[Change], writing: Writing) -> Any:
        """What `written` needs; the same for every body of this signature."""
        ...

    def written(self, edits: Any, more: Mapping[str, bytes] = NO_MORE) -> Written:
        """`more`: new bytes of top-level members that no rule names."""
        ...

    def shortened(self, *, tokens: int, bytes_per_token: float) -> Cut:
        """What cuts the prompt."""
        ...


class Occurrence(Struct, frozen=True):
    """One key that spells a field; `value` None where the client sent null."""

    place: str
    key: str
    field: Field
    value: Scalar | None


class Spelling(Struct, frozen=True):
    """How one format spells fields.

    `keys` maps every key read to its field. `insert` names the key for a field that must be added, by engine
    where they differ; `length` lists the keys that engine reads for the output length, preferred first.
    """

    keys: Mapping[str, Field]
    insert: Mapping[Field, str]
    length: Mapping[Engine, tuple[str, ...]]
    unlimited_length: bool = False

    def insertable(self) -> frozenset[Field]:
        return frozenset(self.insert) | ({Field.MAX_TOKENS} if self.length else frozenset())


class Shape(Struct, frozen=True):
    """A format whose bodies are JSON objects. `place` says where a field goes that must be added."""

    dialect: Dialect
    spelling: Spelling
    insertable: frozenset[Field]
    place: Callable[[Writing], str]


Named = tuple[str, str, bytes]
"""A member that spells a field: its place, its key, its bytes."""


class Edits(Struct, frozen=True):
    """New bytes by key: of the root, and by place of objects nested in it."""

    root: Patch
    nested: Mapping[str, Mapping[str, Edit]]


class JsonDocument:
    """A root object, nested objects by key, and the members in them that rules can name.

    `model` is the name in the path, None where the body names it. `quoted` is the nested place, if there is
    one, whose object stands in a JSON string: an engine may read it alone, so what leaves must hold there.
    """

    __slots__ = ("_named", "_quoted", "_request", "_shape", "model", "nested", "root", "text")

    def __init__(
        self,
        shape: Shape,
        root: JsonObject,
        nested: Mapping[str, JsonObject],
        text: str,
        model: str | None = None,
        *,
        quoted: str | None = None,
    ) -> None:
        self._shape = shape
        self.root = root
        self.nested = nested
        self.text = text
        self.model = model
        self._quoted = quoted
        named = _named(ROOT, root, shape.spelling)
        for place, object_ in nested.items():
            named += _named(place, object_, shape.spelling)
        self._named = tuple(named)
        self._request: InferenceRequest | None = None

    @property
    def signature(self) -> Hashable | None:
        model = self.root.raw("model") if self.model is None else self.model
        if sum([len(raw) for _, _, raw in self._named]) + len(model or ()) > MAX_SIGNATURE_BYTES:
            return None
        return (self._shape.dialect, model, self._named, self._quoted)

    @property
    def request(self) -> InferenceRequest:
        if self._request is None:
            self._request = self._read()
        return self._request

    def _read(self) -> InferenceRequest:
        spelling = self._shape.spelling
        found = self._occurrences()
        values = given(found)
        tokens, keys, unlimited = length(found, spelling)
        if tokens is not None:
            values[Field.MAX_TOKENS] = tokens
        return InferenceRequest(
            dialect=self._shape.dialect,
            model=model_name(self.root) if self.model is None else self.model,
            text=self.text,
            given=values,
            insertable=self._shape.insertable,
            length_keys=keys,
            unlimited_length=unlimited,
            stream=values.get(Field.STREAM) is True,
        )

    def _occurrences(self) -> list[Occurrence]:
        return [occurrence(place, key, raw, self._shape.spelling) for place, key, raw in self._named]

    def respells(self, engine: Engine) -> bool:
        keys = self.request.length_keys
        readable = self._shape.spelling.length.get(engine, ())
        return bool(keys) and (len(keys) > 1 or keys[0] not in readable or self._length_stands_elsewhere())

    def _length_stands_elsewhere(self) -> bool:
        if self._quoted is None:
            return False
        fields = self._shape.spelling.keys
        return any(fields[key] is Field.MAX_TOKENS and place != self._quoted for place, key, _ in self._named)

    def _place(self, writing: Writing) -> str:
        return self._shape.place(writing) if self._quoted is None else self._quoted

    def edits(self, changes: Iterable[Change], writing: Writing) -> Edits:
        edits: dict[str, dict[str, Edit]] = {ROOT: {}}
        found = self._occurrences()
        changes = tuple(changes)
        if self._quoted is not None:
            edits[self._quoted] = self._held_in_quoted(found, changes)
        for change in changes:
            spelled = [o for o in found if o.field is change.field]
            if change.field is Field.MAX_TOKENS:
                self._edit_length(change, spelled, writing, edits)
            else:
                self._edit_field(change, spelled, writing, edits)
        return Edits(Patch(edits.pop(ROOT)), edits)

    def _held_in_quoted(self, found: list[Occurrence], changes: tuple[Change, ...]) -> dict[str, Edit]:
        """What stands only where the engine may not look, added where it does: changed or not, it was judged."""
        there = {o.field for o in found if o.place == self._quoted and o.value is not None}
        values: dict[Field, Value] = {**self.request.given, **{change.field: change.after for change in changes}}
        keys = self._shape.spelling.insert
        return {
            keys[field]: encode(value)
            for field in _HELD_IN_QUOTED
            if field not in there and (value := values.get(field, ABSENT)) is not ABSENT
        }

    def _edit_field(
        self, change: Change, spelled: list[Occurrence], writing: Writing, edits: dict[str, dict[str, Edit]]
    ) -> None:
        value: Edit = ABSENT if change.after is ABSENT else encode(change.after)
        for each in spelled:
            edits.setdefault(each.place, {})[each.key] = value
        if not spelled and value is not ABSENT:
            key = self._shape.spelling.insert[change.field]
            edits.setdefault(self._place(writing), {})[key] = value

    def _edit_length(
        self, change: Change, spelled: list[Occurrence], writing: Writing, edits: dict[str, dict[str, Edit]]
    ) -> None:
        """Exactly one key leaves: one the client used where the engine reads it, else the preferred one."""
        readable = self._shape.spelling.length[writing.engine]
        there = [o for o in spelled if self._quoted in (None, o.place)]
        kept = next((o for key in readable for o in there if o.key == key), None)
        for each in spelled:
            edits.setdefault(each.place, {})[each.key] = ABSENT
        if change.after is not ABSENT:
            place, key = (kept.place, kept.key) if kept else (self._place(writing), readable[0])
            edits.setdefault(place, {})[key] = encode(change.after)

    def shortened(self, *, tokens: int, bytes_per_token: float) -> Cut:
        return cut(self.root, self._shape.dialect, tokens=tokens, bytes_per_token=bytes_per_token)

    def written(self, edits: Edits, more: Mapping[str, bytes] = NO_MORE) -> Written:
        """The body with these edits; a repeated key leaves settled even where nothing else changes."""
        if not self.nested and not edits.nested and not more:
            return Written(self.root.patched(edits.root))
        nested = {
            place: object_.edited(edits.nested.get(place, {}))
            for place, object_ in self.nested.items()
            if edits.nested.get(place) or object_.rewritten
        }
        for place in edits.nested.keys() - self.nested.keys():
            nested[place] = parse(b"{}", max_keys=0).edited(edits.nested[place])
        if self._quoted in nested:
            nested[self._quoted] = encode(nested[self._quoted].decode())
        return Written(self.root.edited({**edits.root.edits, **nested, **more}))

    def write(self, changes: Iterable[Change], writing: Writing) -> Written:
        return self.written(self.edits(changes, writing))


def _named(place: str, object_: JsonObject, spelling: Spelling) -> list[Named]:
    keys = spelling.keys
    return [(place, key, raw) for key, raw in object_.values.items() if key in keys]


def occurrence(place: str, key: str, raw: bytes, spelling: Spelling) -> Occurrence:
    """One member as a value; ClientFault 400 for one that cannot be the field."""
    field = spelling.keys[key]
    return Occurrence(place, key, field, _checked(field, key, raw, lenient=field is Field.MAX_TOKENS))


def occurrences(object_: JsonObject, spelling: Spelling, place: str = ROOT) -> list[Occurrence]:
    """Every key of the object that spells a field; ClientFault 400 for a value that cannot be one."""
    return [occurrence(*named, spelling) for named in _named(place, object_, spelling)]


def given(found: Iterable[Occurrence]) -> dict[Field, Scalar]:
    """One value per field. Of several the one that asks for most, so that a cap holds for each."""
    values: dict[Field, Scalar] = {}
    for occurrence in found:
        field, value = occurrence.field, occurrence.value
        if value is None or field is Field.MAX_TOKENS:
            continue
        known = values.get(field)
        if known is None or (field in _LARGEST and value > known):  # type: ignore[operator]
            values[field] = value
    return values


def length(found: Iterable[Occurrence], spelling: Spelling) -> tuple[int | None, tuple[str, ...], bool]:
    """(smallest valid output length, keys that spell one, whether no limit was asked for).

    ClientFault 400 where values are given and none is valid.
    """
    spelled = [occurrence for occurrence in found if occurrence.field is Field.MAX_TOKENS]
    keys = tuple(occurrence.key for occurrence in spelled)
    values = [(o.key, o.value) for o in spelled if o.value is not None]
    valid = [int(v) for _, v in values if _is_count(v) and v >= 0]  # type: ignore[operator]
    unlimited = spelling.unlimited_length and any(_is_count(v) and v < 0 for _, v in values)  # type: ignore[operator]
    if values and not valid and not unlimited:
        raise invalid(values[0][0], "a whole number of tokens, 0 or more")
    return (min(valid) if valid else None), keys, unlimited


def model_name(object_: JsonObject) -> str:
    """The body's model; "" where absent or null; ClientFault 400 for anything but a short string."""
    raw = object_.raw("model")
    if raw is None or raw == b"null":
        return ""
    if raw[:1] != b'"':
        raise invalid("model", "a string")
    if len(raw) > MAX_MODEL_CHARS:
        raise ClientFault(400, "invalid_model", f"'model' is longer than {MAX_MODEL_CHARS} bytes.", param="model")
    return str(scalar(raw))


def invalid(param: str, allowed: str) -> ClientFault:
    return ClientFault(400, "invalid_parameter", f"Invalid '{param}': expected {allowed}.", param=param)


def _checked(field: Field, key: str, raw: bytes, *, lenient: bool) -> Scalar | None:
    """The value, checked for its kind. `lenient` leaves the judgement of numbers to `length`."""
    if field not in _CHECKED:
        return _number_or_mark(raw)
    try:
        value = scalar(raw)
    except ValueError:
        value = "?"
    if lenient or value is None:
        return value
    if field is Field.STREAM:
        if not isinstance(value, bool):
            raise invalid(key, "true or false")
    elif isinstance(value, bool | str) or not 0 <= value < float("inf"):
        raise invalid(key, "a number, 0 or more")
    elif field in _COUNTS and not isinstance(value, int):
        raise invalid(key, "a whole number, 0 or more")
    return value


def _number_or_mark(raw: bytes) -> Scalar | None:
    """A number; a mark for anything else, so that no text of a client ends up in a record."""
    if raw == b"null":
        return None
    return number(raw) if raw[:1] in b"-0123456789" else NO_NUMBER


def _is_count(value: Scalar) -> bool:
    """Whole numbers, and numbers so large that only a limit matters; never NaN, strings or booleans."""
    if isinstance(value, bool | str):
        return False
    return isinstance(value, int) or (abs(value) >= 1e15 and abs(value) != float("inf"))


_CHECKED = _LARGEST | {Field.MAX_TOKENS, Field.STREAM}

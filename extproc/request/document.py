"""A body as a document: where each rule-named field stands in it, and how changes are written back.

Most formats are one JSON object, Triton's generate nests a second one (`parameters`), so a document is a
root and its nested objects, and an occurrence names its place. Triton's infer has its own document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from msgspec import Struct

from extproc.errors import ClientFault
from extproc.model.names import Engine, Field
from extproc.model.values import ABSENT, Change, InferenceRequest, Scalar, Target
from extproc.registry import TritonRules
from extproc.request.headers import Headers
from extproc.request.json_object import Edit, JsonObject, encode, parse, scalar

MAX_MODEL_CHARS = 512
ROOT = ""

_LARGEST = frozenset({Field.TEMPERATURE, Field.TOP_P, Field.BEAMS, Field.N, Field.BEST_OF})
_COUNTS = frozenset({Field.BEAMS, Field.N, Field.BEST_OF})


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
    @property
    def request(self) -> InferenceRequest: ...

    def respells(self, engine: Engine) -> bool:
        """Whether the length keys must change even where the value stays."""
        ...

    def write(self, changes: Iterable[Change], writing: Writing) -> Written: ...


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


class JsonDocument(Struct, frozen=True):
    """A root object with nested objects by key, and the occurrences found in them."""

    request: InferenceRequest
    root: JsonObject
    nested: Mapping[str, JsonObject]
    occurrences: tuple[Occurrence, ...]
    spelling: Spelling
    place: Callable[[Writing], str]

    def respells(self, engine: Engine) -> bool:
        keys = self.request.length_keys
        readable = self.spelling.length.get(engine, ())
        return bool(keys) and (len(keys) > 1 or keys[0] not in readable)

    def write(self, changes: Iterable[Change], writing: Writing) -> Written:
        """The body with these changes; a repeated key leaves settled even where nothing else changes."""
        edits: dict[str, dict[str, Edit]] = {ROOT: {}}
        for change in changes:
            if change.field is Field.MAX_TOKENS:
                self._write_length(change, writing, edits)
            else:
                self._write_field(change, writing, edits)
        for place, object_ in self.nested.items():
            if edits.get(place) or object_.rewritten:
                edits[ROOT][place] = object_.edited(edits.get(place, {}))
        for place in edits.keys() - self.nested.keys() - {ROOT}:
            edits[ROOT][place] = parse(b"{}", max_keys=0).edited(edits[place])
        return Written(self.root.edited(edits[ROOT]))

    def _write_field(self, change: Change, writing: Writing, edits: dict[str, dict[str, Edit]]) -> None:
        value: Edit = ABSENT if change.after is ABSENT else encode(change.after)
        found = [occurrence for occurrence in self.occurrences if occurrence.field is change.field]
        for occurrence in found:
            edits.setdefault(occurrence.place, {})[occurrence.key] = value
        if not found and value is not ABSENT:
            edits.setdefault(self.place(writing), {})[self.spelling.insert[change.field]] = value

    def _write_length(self, change: Change, writing: Writing, edits: dict[str, dict[str, Edit]]) -> None:
        """Exactly one key leaves: one the client used where the engine reads it, else the preferred one."""
        found = [occurrence for occurrence in self.occurrences if occurrence.field is Field.MAX_TOKENS]
        readable = self.spelling.length[writing.engine]
        kept = next((o for key in readable for o in found if o.key == key), None)
        for occurrence in found:
            edits.setdefault(occurrence.place, {})[occurrence.key] = ABSENT
        if change.after is not ABSENT:
            place, key = (kept.place, kept.key) if kept else (self.place(writing), readable[0])
            edits.setdefault(place, {})[key] = encode(change.after)


def occurrences(object_: JsonObject, spelling: Spelling, place: str = ROOT) -> list[Occurrence]:
    """Every key of the object that spells a field; ClientFault 400 for a value that cannot be one."""
    found = []
    for key in object_.values.keys() & spelling.keys.keys():
        field = spelling.keys[key]
        value = _checked(field, key, bytes(object_.values[key]), lenient=field is Field.MAX_TOKENS)
        found.append(Occurrence(place, key, field, value))
    return found


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
        return _or_none(raw)
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


def _or_none(raw: bytes) -> Scalar | None:
    try:
        return scalar(raw)
    except ValueError:
        return "?"


def _is_count(value: Scalar) -> bool:
    """Whole numbers, and numbers so large that only a limit matters; never NaN, strings or booleans."""
    if isinstance(value, bool | str):
        return False
    return isinstance(value, int) or (abs(value) >= 1e15 and abs(value) != float("inf"))


_CHECKED = _LARGEST | {Field.MAX_TOKENS, Field.STREAM}

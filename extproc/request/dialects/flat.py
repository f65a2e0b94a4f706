"""Reads the formats that are one JSON object: OpenAI's four, Anthropic's, llama.cpp's."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from extproc.model.names import Dialect
from extproc.request.document import ROOT, JsonDocument, Reading, Shape, Spelling, Writing
from extproc.request.json_object import JsonObject, parse


def flat(dialect: Dialect, spelling: Spelling, text: Callable[[JsonObject, int], str]) -> FlatFormat:
    return FlatFormat(Shape(dialect, spelling, spelling.insertable(), _at_root), text)


class FlatFormat(Struct, frozen=True):
    """One format: how it spells fields, and where its text stands."""

    shape: Shape
    text: Callable[[JsonObject, int], str]

    def read(self, body: bytes, reading: Reading) -> JsonDocument:
        root = parse(body, max_keys=reading.max_keys)
        return JsonDocument(self.shape, root, {}, self.text(root, reading.max_chars))


def _at_root(_: Writing) -> str:
    return ROOT

"""Reads the formats that are one JSON object: OpenAI's four, Anthropic's, llama.cpp's."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from extproc.model.names import Dialect, Field
from extproc.model.values import InferenceRequest
from extproc.request import document
from extproc.request.document import JsonDocument, Reading, Spelling, Writing
from extproc.request.json_object import JsonObject, parse


def flat(dialect: Dialect, spelling: Spelling, text: Callable[[JsonObject, int], str]) -> FlatFormat:
    return FlatFormat(dialect, spelling, text, spelling.insertable())


class FlatFormat(Struct, frozen=True):
    """One format: how it spells fields, and where its text stands."""

    dialect: Dialect
    spelling: Spelling
    text: Callable[[JsonObject, int], str]
    insertable: frozenset[Field]

    def read(self, body: bytes, reading: Reading) -> JsonDocument:
        root = parse(body, max_keys=reading.max_keys)
        found = tuple(document.occurrences(root, self.spelling))
        given = document.given(found)
        tokens, keys, unlimited = document.length(found, self.spelling)
        if tokens is not None:
            given[Field.MAX_TOKENS] = tokens
        request = InferenceRequest(
            dialect=self.dialect,
            model=document.model_name(root),
            text=self.text(root, reading.max_chars),
            given=given,
            insertable=self.insertable,
            length_keys=keys,
            unlimited_length=unlimited,
            stream=given.get(Field.STREAM) is True,
        )
        return JsonDocument(request, root, {}, found, self.spelling, _at_root)


def _at_root(_: Writing) -> str:
    return document.ROOT

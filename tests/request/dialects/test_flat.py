"""Reading a format that is one JSON object."""

from __future__ import annotations

import pytest

from extproc.errors import ClientFault
from extproc.model.names import Dialect, Engine, Family, Field
from extproc.model.values import ABSENT, Change, Target
from extproc.request.dialects.flat import flat
from extproc.request.document import Reading, Spelling, Writing
from extproc.request.headers import Headers
from tests.decide.worlds import world

FORMAT = flat(
    Dialect.OPENAI_COMPLETIONS,
    Spelling(
        keys={"heat": Field.TEMPERATURE, "most": Field.MAX_TOKENS, "least": Field.MAX_TOKENS, "s": Field.STREAM},
        insert={Field.TEMPERATURE: "heat"},
        length={Engine.VLLM: ("most",)},
        unlimited_length=True,
    ),
    lambda root, most: str(most) + str(len(root.values)),
)
READING = Reading(
    Target(Family.OPENAI, Dialect.OPENAI_COMPLETIONS),
    Headers(()),
    5,
    77,
    lambda m: world().registry.profile(m).triton,
)


def test_reads_what_the_spelling_names() -> None:
    request = FORMAT.read(b'{"model":"m","heat":1E0,"most":9,"temperature":"?","s":true}', READING).request
    assert request.dialect is Dialect.OPENAI_COMPLETIONS
    assert request.model == "m"
    assert request.given == {Field.TEMPERATURE: 1, Field.MAX_TOKENS: 9, Field.STREAM: True}
    assert request.stream is True
    assert request.length_keys == ("most",)
    assert request.unlimited_length is False
    assert request.insertable == {Field.TEMPERATURE, Field.MAX_TOKENS}
    assert request.text == "775"


def test_an_empty_object() -> None:
    request = FORMAT.read(b"{}", READING).request
    assert (request.model, dict(request.given), request.length_keys, request.stream) == ("", {}, (), False)


@pytest.mark.parametrize(
    ("body", "tokens", "unlimited"),
    [
        (b'{"most":-1}', None, True),
        (b'{"most":-1,"least":4}', 4, True),
        (b'{"most":-2.0}', None, True),
        (b'{"most":null}', None, False),
        (b'{"most":3,"least":4}', 3, False),
    ],
)
def test_lengths(body: bytes, tokens: int | None, unlimited: bool) -> None:
    request = FORMAT.read(body, READING).request
    assert (request.given.get(Field.MAX_TOKENS), request.unlimited_length) == (tokens, unlimited)


def test_the_bound_of_keys_is_the_readings() -> None:
    with pytest.raises(ClientFault) as refusal:
        FORMAT.read(b'{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1}', READING)
    assert refusal.value.reason == "too_many_keys"


def test_an_added_field_is_spelled_as_the_format_does() -> None:
    found = FORMAT.read(b'{"least":4}', READING)
    assert found.respells(Engine.VLLM)
    changes = [
        Change(Field.TEMPERATURE, ABSENT, 0.3, "rule", "why"),
        Change(Field.MAX_TOKENS, 4, 4, "rule", "why"),
    ]
    writing = Writing(Engine.VLLM, world().registry.profile("m").triton)
    assert found.write(changes, writing).body == b'{"heat":0.3,"most":4}'

"""Which dialects' answers are read."""

from __future__ import annotations

from extproc.model.names import Dialect
from extproc.usage.facts import Facts
from extproc.usage.formats import READERS, facts
from extproc.usage.held import Held


def test_every_dialect_but_tensors_has_a_reader() -> None:
    assert set(Dialect) - set(READERS) == {Dialect.TRITON_INFER}


def test_a_long_document_is_read_at_its_ends() -> None:
    held = Held(60)
    held.add(b'{"usage":{"completion_tokens":5}}')
    read = READERS[Dialect.OPENAI_CHAT]
    assert facts(read, held) == Facts(output_tokens=5)
    held.add(b" " * 50 + b'"usage":{"completion_tokens":6}}')
    assert facts(read, held).output_tokens == 6

"""The reader of each dialect's answers. Tensors have none: nothing in them says what a token is."""

from __future__ import annotations

from collections.abc import Callable

from extproc.model.names import Dialect
from extproc.usage import ends
from extproc.usage.dialects import anthropic, llamacpp, openai, openai_responses, triton
from extproc.usage.facts import Facts
from extproc.usage.held import Held

Read = Callable[[bytes], Facts]

READERS: dict[Dialect, Read] = {
    Dialect.OPENAI_CHAT: openai.read,
    Dialect.OPENAI_COMPLETIONS: openai.read,
    Dialect.OPENAI_EMBEDDINGS: openai.read,
    Dialect.OPENAI_RESPONSES: openai_responses.read,
    Dialect.ANTHROPIC_MESSAGES: anthropic.read,
    Dialect.LLAMACPP_COMPLETION: llamacpp.read,
    Dialect.TRITON_GENERATE: triton.read,
}


def facts(read: Read, document: Held) -> Facts:
    whole = document.whole
    return ends.read(*document.ends) if whole is None else read(whole)

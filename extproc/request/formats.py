"""The reader of each dialect."""

from __future__ import annotations

from collections.abc import Callable

from extproc.model.names import Dialect
from extproc.request.dialects import (
    anthropic_messages,
    llamacpp_completion,
    openai_chat,
    openai_completions,
    openai_embeddings,
    openai_responses,
    triton_generate,
    triton_infer,
)
from extproc.request.document import Document, Reading

Read = Callable[[bytes, Reading], Document]

READERS: dict[Dialect, Read] = {
    Dialect.OPENAI_CHAT: openai_chat.FORMAT.read,
    Dialect.OPENAI_COMPLETIONS: openai_completions.FORMAT.read,
    Dialect.OPENAI_RESPONSES: openai_responses.FORMAT.read,
    Dialect.OPENAI_EMBEDDINGS: openai_embeddings.FORMAT.read,
    Dialect.ANTHROPIC_MESSAGES: anthropic_messages.FORMAT.read,
    Dialect.TRITON_GENERATE: triton_generate.read,
    Dialect.TRITON_INFER: triton_infer.read,
    Dialect.LLAMACPP_COMPLETION: llamacpp_completion.FORMAT.read,
}

"""OpenAI embeddings: nothing is generated, so only the priority is a field here."""

from __future__ import annotations

from extproc.model.names import Dialect, Field
from extproc.request import text
from extproc.request.dialects.flat import flat
from extproc.request.document import Spelling

FORMAT = flat(
    Dialect.OPENAI_EMBEDDINGS,
    Spelling(keys={"priority": Field.PRIORITY}, insert={Field.PRIORITY: "priority"}, length={}),
    lambda root, max_chars: text.of_prompt(root.raw("input"), max_chars),
)

"""Anthropic messages, as vLLM and llama.cpp serve it. The format has no field for a priority."""

from __future__ import annotations

from extproc.model.names import Dialect, Field
from extproc.request import text
from extproc.request.dialects.flat import flat
from extproc.request.dialects.spellings import FAN_OUT, LENGTH, SAMPLING, WITHOUT_PRIORITY, everywhere
from extproc.request.document import Spelling

FORMAT = flat(
    Dialect.ANTHROPIC_MESSAGES,
    Spelling(
        keys=SAMPLING | LENGTH | FAN_OUT | {"stream": Field.STREAM},
        insert=WITHOUT_PRIORITY,
        length=everywhere("max_tokens"),
    ),
    lambda root, max_chars: text.of_messages(root.raw("messages"), max_chars),
)

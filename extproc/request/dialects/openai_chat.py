"""OpenAI chat completions, as vLLM and llama.cpp serve it."""

from __future__ import annotations

from extproc.model.names import Dialect, Engine, Field
from extproc.request import text
from extproc.request.dialects.flat import flat
from extproc.request.dialects.spellings import DRAFTS, FAN_OUT, INSERT, LENGTH, SAMPLING, everywhere
from extproc.request.document import Spelling

FORMAT = flat(
    Dialect.OPENAI_CHAT,
    Spelling(
        keys=SAMPLING | DRAFTS | LENGTH | FAN_OUT | {"stream": Field.STREAM, "priority": Field.PRIORITY},
        insert=INSERT | {field: key for key, field in DRAFTS.items()},
        length=everywhere("max_tokens", "max_completion_tokens") | {Engine.LLAMACPP: ("max_tokens", "n_predict")},
    ),
    lambda root, max_chars: text.of_messages(root.raw("messages"), max_chars),
)

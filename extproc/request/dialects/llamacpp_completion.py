"""llama.cpp's own completion: the length is `n_predict`, and below 0 means without limit."""

from __future__ import annotations

from extproc.model.names import Dialect, Engine, Field
from extproc.request import text
from extproc.request.dialects.flat import flat
from extproc.request.dialects.spellings import DRAFTS, FAN_OUT, LENGTH, SAMPLING, WITHOUT_PRIORITY, everywhere
from extproc.request.document import Spelling

FORMAT = flat(
    Dialect.LLAMACPP_COMPLETION,
    Spelling(
        keys=SAMPLING | DRAFTS | LENGTH | FAN_OUT | {"stream": Field.STREAM},
        insert=WITHOUT_PRIORITY | {field: key for key, field in DRAFTS.items()},
        length=everywhere("max_tokens") | {Engine.LLAMACPP: ("n_predict",)},
        unlimited_length=True,
    ),
    lambda root, max_chars: text.of_prompt(root.raw("prompt"), max_chars),
)

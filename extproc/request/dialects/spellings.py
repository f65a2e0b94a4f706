"""How engines spell the fields they share. A format's own file says which of these it reads."""

from __future__ import annotations

from extproc.model.names import Engine, Field

SAMPLING: dict[str, Field] = {
    "temperature": Field.TEMPERATURE,
    "top_p": Field.TOP_P,
    "top_k": Field.TOP_K,
    "min_p": Field.MIN_P,
    "typical_p": Field.TYPICAL_P,
    "typ_p": Field.TYPICAL_P,
    "xtc_probability": Field.XTC_PROBABILITY,
    "xtc_threshold": Field.XTC_THRESHOLD,
    "dynatemp_range": Field.DYNATEMP_RANGE,
    "mirostat": Field.MIROSTAT,
    "min_tokens": Field.MIN_TOKENS,
    "num_beams": Field.BEAMS,
    "beam_width": Field.BEAMS,
}

LENGTH: dict[str, Field] = dict.fromkeys(
    ("max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict"), Field.MAX_TOKENS
)
"""Every spelling of the output length is read in every format: an engine may read one we do not expect."""

FAN_OUT: dict[str, Field] = {"n": Field.N, "n_cmpl": Field.N, "best_of": Field.BEST_OF}

DRAFTS: dict[str, Field] = {"speculative.n_max": Field.SPECULATIVE}
"""llama.cpp's, in the formats it serves; engines that draft by their own configuration ignore it."""

INSERT: dict[Field, str] = {
    Field.TEMPERATURE: "temperature",
    Field.TOP_P: "top_p",
    Field.STREAM: "stream",
    Field.PRIORITY: "priority",
}


WITHOUT_PRIORITY: dict[Field, str] = {f: key for f, key in INSERT.items() if f is not Field.PRIORITY}


def everywhere(*keys: str) -> dict[Engine, tuple[str, ...]]:
    """The same length keys, preferred first, whatever the engine."""
    return dict.fromkeys(Engine, keys)

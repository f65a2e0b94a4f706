"""What engines share, key by key."""

from __future__ import annotations

from extproc.model.names import SAMPLING_FIELDS, Engine, Field
from extproc.request.dialects import spellings


def test_every_key_is_read_as_one_field() -> None:
    assert spellings.SAMPLING == {
        "temperature": "temperature",
        "top_p": "top_p",
        "top_k": "top_k",
        "min_p": "min_p",
        "typical_p": "typical_p",
        "typ_p": "typical_p",
        "xtc_probability": "xtc_probability",
        "xtc_threshold": "xtc_threshold",
        "dynatemp_range": "dynatemp_range",
        "mirostat": "mirostat",
        "min_tokens": "min_tokens",
        "num_beams": "beams",
        "beam_width": "beams",
    }
    assert spellings.LENGTH.keys() == {"max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict"}
    assert set(spellings.LENGTH.values()) == {Field.MAX_TOKENS}
    assert spellings.FAN_OUT == {"n": Field.N, "n_cmpl": Field.N, "best_of": Field.BEST_OF}


def test_every_field_of_sampling_has_a_key() -> None:
    assert set(SAMPLING_FIELDS) <= set(spellings.SAMPLING.values())


def test_what_is_added_is_spelled_as_it_is_read() -> None:
    read = spellings.SAMPLING | {"stream": Field.STREAM, "priority": Field.PRIORITY}
    assert all(read[key] is field for field, key in spellings.INSERT.items())
    assert spellings.INSERT.keys() - spellings.WITHOUT_PRIORITY.keys() == {Field.PRIORITY}


def test_everywhere() -> None:
    assert spellings.everywhere("a", "b") == dict.fromkeys(Engine, ("a", "b"))

"""Vocabularies: what headers, metrics, audit and the config spell."""

from __future__ import annotations

from enum import StrEnum

import pytest

from extproc.model.names import (
    NATURAL_ENGINE,
    SAMPLING_FIELDS,
    SPEAKS,
    Dialect,
    Engine,
    Family,
    Field,
    Mode,
    RequestClass,
    Tier,
)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Tier, "strict normal creative"),
        (RequestClass, "critical normal best-effort"),
        (Engine, "triton vllm llamacpp"),
        (Mode, "default cap force"),
        (Family, "openai anthropic triton llamacpp"),
        (
            Dialect,
            "openai_chat openai_completions openai_responses openai_embeddings anthropic_messages triton_generate "
            "triton_infer llamacpp_completion",
        ),
        (
            Field,
            "temperature top_p max_tokens beams n best_of stream priority top_k min_p typical_p xtc_probability "
            "xtc_threshold dynatemp_range mirostat min_tokens speculative model prompt_tokens",
        ),
    ],
)
def test_words(kind: type[StrEnum], words: str) -> None:
    assert [member.value for member in kind] == words.split()
    assert [str(member) for member in kind] == words.split()


def test_every_family_has_an_engine_that_speaks_it() -> None:
    assert NATURAL_ENGINE.keys() == set(Family)
    assert SPEAKS.keys() == set(Engine)
    assert all(family in SPEAKS[engine] for family, engine in NATURAL_ENGINE.items())


def test_fields_of_sampling_are_none_that_a_rule_sets() -> None:
    ruled = {Field.TEMPERATURE, Field.TOP_P, Field.MAX_TOKENS, Field.MIN_TOKENS, Field.BEAMS, Field.N}
    ruled |= {Field.BEST_OF, Field.STREAM, Field.SPECULATIVE, Field.MODEL, Field.PROMPT_TOKENS}
    assert ruled.isdisjoint(SAMPLING_FIELDS)
    assert ruled | set(SAMPLING_FIELDS) | {Field.PRIORITY} == set(Field)

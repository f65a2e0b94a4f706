"""Closed vocabularies. Their values are what headers, metrics, audit and the config spell."""

from __future__ import annotations

from enum import StrEnum


class Tier(StrEnum):
    STRICT = "strict"
    NORMAL = "normal"
    CREATIVE = "creative"


class RequestClass(StrEnum):
    """Priority class, highest first."""

    CRITICAL = "critical"
    NORMAL = "normal"
    BEST_EFFORT = "best-effort"


class Engine(StrEnum):
    TRITON = "triton"
    VLLM = "vllm"
    LLAMACPP = "llamacpp"


class Dialect(StrEnum):
    """A request body format. One file per value in `request/dialects/`."""

    OPENAI_CHAT = "openai_chat"
    OPENAI_COMPLETIONS = "openai_completions"
    OPENAI_RESPONSES = "openai_responses"
    OPENAI_EMBEDDINGS = "openai_embeddings"
    ANTHROPIC_MESSAGES = "anthropic_messages"
    TRITON_GENERATE = "triton_generate"
    TRITON_INFER = "triton_infer"
    LLAMACPP_COMPLETION = "llamacpp_completion"


class Family(StrEnum):
    """Which API a path belongs to; an engine speaks some of them."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    TRITON = "triton"
    LLAMACPP = "llamacpp"


class Mode(StrEnum):
    """How a tier treats a client's value: fill when absent, lower it, or replace it."""

    DEFAULT = "default"
    CAP = "cap"
    FORCE = "force"


class Field(StrEnum):
    """A parameter as the rules know it, whatever the dialect spells. Values are the audit's spelling."""

    TEMPERATURE = "temperature"
    TOP_P = "top_p"
    MAX_TOKENS = "max_tokens"
    BEAMS = "beams"
    N = "n"
    BEST_OF = "best_of"
    STREAM = "stream"
    PRIORITY = "priority"
    TOP_K = "top_k"
    MIN_P = "min_p"
    TYPICAL_P = "typical_p"
    XTC_PROBABILITY = "xtc_probability"
    XTC_THRESHOLD = "xtc_threshold"
    DYNATEMP_RANGE = "dynatemp_range"
    MIROSTAT = "mirostat"
    MIN_TOKENS = "min_tokens"
    SPECULATIVE = "speculative"
    MODEL = "model"
    PROMPT_TOKENS = "prompt_tokens"


SAMPLING_FIELDS = (
    Field.TOP_K,
    Field.MIN_P,
    Field.TYPICAL_P,
    Field.XTC_PROBABILITY,
    Field.XTC_THRESHOLD,
    Field.DYNATEMP_RANGE,
    Field.MIROSTAT,
)
"""Fields that only shape random sampling: they go when the temperature is 0."""


SPEAKS: dict[Engine, frozenset[Family]] = {
    Engine.VLLM: frozenset({Family.OPENAI, Family.ANTHROPIC}),
    Engine.LLAMACPP: frozenset({Family.OPENAI, Family.ANTHROPIC, Family.LLAMACPP}),
    Engine.TRITON: frozenset({Family.TRITON}),
}
"""The API families each engine's server answers."""

NATURAL_ENGINE: dict[Family, Engine] = {
    Family.OPENAI: Engine.VLLM,
    Family.ANTHROPIC: Engine.VLLM,
    Family.TRITON: Engine.TRITON,
    Family.LLAMACPP: Engine.LLAMACPP,
}
"""The engine assumed for a family while no pool is configured."""


NO_OPINION = "default"
LOW_CONFIDENCE = "low_confidence"
LATE = "deadline"
"""Rules of a verdict that stand for the default tier: nobody knew, nobody was sure, it took too long."""

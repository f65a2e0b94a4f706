"""The parameter set: one versioned, named set of the rules that decide request parameters.

Shapes only; what they mean stands in `decide/` and `request/classify/`. The version is a hash of the
content, so that two sidecars with the same rules say the same version and an edit never hides.
"""

from __future__ import annotations

import hashlib
from typing import Annotated

import msgspec
import re2
from pydantic import AfterValidator, Field

from extproc.model.config import Config, Name, Tokens
from extproc.model.names import Mode, RequestClass, Tier

Temperature = Annotated[float, Field(ge=0, le=2)]
Probability = Annotated[float, Field(ge=0, le=1)]


def _re2_pattern(pattern: str) -> str:
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(pattern, options=options)
    except re2.error as error:
        reason = error.args[0] if error.args else "invalid"
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(f"not a RE2 pattern: {text}") from None
    return pattern


Pattern = Annotated[str, AfterValidator(_re2_pattern)]


class MaxTokens(Config):
    """Output length in tokens."""

    default: Tokens
    streaming_threshold: Tokens
    whitelist: list[Name]
    context_fraction: Annotated[float, Field(gt=0, le=1)]


class TierTemperatures(Config):
    strict: Temperature
    normal: Temperature
    creative: Temperature

    def of(self, tier: Tier) -> float:
        return float(getattr(self, tier.value))


class TierModes(Config):
    """How each tier treats the client's temperature."""

    strict: Mode = Field(strict=False)
    normal: Mode = Field(strict=False)
    creative: Mode = Field(strict=False)

    def of(self, tier: Tier) -> Mode:
        return Mode(getattr(self, tier.value))


class Modes(Config):
    temperature: TierModes


class Batch(Config):
    """Bounds of the engine's batcher: sizes in requests, wait in ms."""

    min_size: Annotated[int, Field(ge=1)]
    max_size: Annotated[int, Field(ge=1)]
    timeout_ms: Annotated[int, Field(ge=0)]


class LinePoint(Config):
    temperature: Temperature
    top_p: Probability


class BeamRule(Config):
    """Applies to requests with more than `above` beams."""

    above: Annotated[int, Field(ge=1)]
    max_temperature: Temperature | None = None
    min_top_p: Probability | None = None


class Coupling(Config):
    """The line from temperature to top_p (ascending, clamped outside), and what beams demand."""

    line: Annotated[list[LinePoint], Field(min_length=1)]
    beams: list[BeamRule]


class FanOut(Config):
    """How many answers one request may ask for."""

    n: Annotated[int, Field(ge=1)]
    best_of: Annotated[int, Field(ge=1)]


class LowestLatency(Config):
    """Requests that get temperature 0: by model name pattern or by path prefix."""

    models: list[str]
    paths: list[str]


class InferenceParams(Config):
    max_tokens: MaxTokens
    temperature: TierTemperatures
    modes: Modes
    batch: Batch
    coupling: Coupling
    fan_out: FanOut
    lowest_latency: LowestLatency


class Scenario(Config):
    """What a request can be about: its tier, its output length in tokens, its priority class."""

    tier: Tier = Field(strict=False)
    length: Tokens | None = None
    request_class: RequestClass | None = Field(default=None, strict=False)


class Rule(Config):
    """A RE2 pattern over the user's text; a match decides the tier, and the scenario where one is named."""

    name: Name
    pattern: Pattern
    tier: Tier = Field(strict=False)
    scenario: Name | None = None


class Classify(Config):
    """Which tier a request gets. `max_chars` bounds the text that is looked at."""

    default_tier: Tier = Field(strict=False)
    default_scenario: Name
    min_confidence: Probability
    max_chars: Annotated[int, Field(ge=64, le=1_000_000)]
    rules: list[Rule]
    extra_rules: list[Rule]

    def all_rules(self) -> list[Rule]:
        """A user's own before the shipped ones."""
        return [*self.extra_rules, *self.rules]


class ParameterSet(Config):
    """Everything that decides parameters. `label` is what decisions carry: name and version."""

    name: Name
    inference_params: InferenceParams
    scenarios: dict[Name, Scenario]
    classify: Classify

    def version(self) -> str:
        """Twelve hex digits of the content's SHA-256; the name is not part of it."""
        content = msgspec.json.encode(self.model_dump(mode="json", exclude={"name"}), order="sorted")
        return hashlib.sha256(content).hexdigest()[:12]

    def label(self) -> str:
        return f"{self.name}@{self.version()}"

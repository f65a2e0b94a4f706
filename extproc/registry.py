"""Which models and pools exist, and what holds for a model by its name.

A name is looked up once and remembered in a bounded table: the rejected alternative, matching every
pattern on every request, grows with the number of profiles; an unbounded table grows with what clients send.
"""

from __future__ import annotations

import fnmatch
import math
import re
from typing import Annotated

from msgspec import Struct
from pydantic import Field

from extproc.model.config import Config, Name, Tokens
from extproc.model.names import SPEAKS, Dialect, Engine, Family
from extproc.model.topology import Role
from extproc.pools import Pool, PoolSpec

MAX_REMEMBERED_MODELS = 4096

FIRST, NONE = "first", "none"
"""What `default_pool` may say besides a pool's name: the first that speaks the API, or 404 for an unknown model."""


class EngineRules(Config):
    """Facts about one kind of engine.

    `default_output_tokens` says by dialect how much it generates when the request names no length; a dialect
    that is not listed generates until the context is full.
    """

    schedules_by_priority: bool
    min_output_tokens: Annotated[int, Field(ge=0)]
    default_output_tokens: dict[Annotated[Dialect, Field(strict=False)], Tokens]


class Engines(Config):
    vllm: EngineRules
    triton: EngineRules
    llamacpp: EngineRules


class TensorNames(Config):
    """Names of the input tensors that carry parameters of a Triton model; null = the model has none."""

    max_tokens: str | None
    temperature: str | None
    top_p: str | None
    top_k: str | None
    beams: str | None
    text: str | None


class TritonRules(Config):
    """Where a Triton model reads its parameters: `parameters`, `top_level`, or `tensors` for infer."""

    generate_place: Annotated[str, Field(pattern="^(parameters|top_level)$")]
    generate_priority: bool
    tensors: TensorNames


class ModelDefaults(Config):
    """What holds for a model no profile names. Lengths in tokens."""

    context_window: Tokens
    max_output_tokens: Tokens | None
    triton: TritonRules


class ModelRules(Config):
    """One profile: shell-style name patterns (`*`, `?`) and what differs from the defaults."""

    name: Name
    match: Annotated[list[str], Field(min_length=1)]
    context_window: Tokens | None = None
    max_output_tokens: Tokens | None = None
    min_output_tokens: Annotated[int, Field(ge=0)] | None = None
    default_output_tokens: Tokens | None = None
    pool: Name | None = None
    triton: TritonRules | None = None


class Profile(Struct, frozen=True):
    """A model's resolved facts. `length_cap` = min(floor(fraction x window), explicit cap)."""

    name: str
    length_cap: int
    min_output_tokens: int | None
    default_output_tokens: int | None
    pool: str | None
    triton: TritonRules
    lowest_latency: bool


class PoolFacts(Struct, frozen=True):
    """A pool as decisions see it. `accuracy`: what its variant keeps of the full model's, in (0, 1]."""

    name: str
    engine: Engine
    schedules_by_priority: bool
    role: Role = Role.STABLE
    variant: str = ""
    accuracy: float = 1.0
    hardware: str = ""
    served_model: str | None = None


class Registry:
    """Looks up profiles by model name and pools by name or API family."""

    def __init__(
        self,
        *,
        defaults: ModelDefaults,
        models: list[ModelRules],
        pools: list[Pool],
        specs: tuple[PoolSpec, ...],
        default_pool: str,
        engines: Engines,
        context_fraction: float,
        lowest_latency_models: list[str],
    ) -> None:
        self._defaults = defaults
        self._models = [(_matcher(rules.match), rules) for rules in models]
        self._lowest_latency = _matcher(lowest_latency_models)
        self._fraction = context_fraction
        self._engines = engines
        self._profiles: dict[str, Profile] = {}
        self.pools = tuple(self._facts(*each) for each in zip(pools, specs, strict=True))
        self.default_pool = default_pool
        self._by_name = {pool.name: pool for pool in self.pools}
        self._by_family = {family: self._first(family) for family in Family}

    def engine_rules(self, engine: Engine) -> EngineRules:
        rules: EngineRules = getattr(self._engines, engine.value)
        return rules

    def pool(self, name: str) -> PoolFacts | None:
        return self._by_name.get(name)

    def served_model(self, name: str | None) -> str | None:
        """What a pool calls its model; None where the config does not say."""
        pool = None if name is None else self.pool(name)
        return None if pool is None else pool.served_model

    def pool_for(self, family: Family) -> PoolFacts | None:
        """The first stable pool whose engine speaks this API family."""
        return self._by_family[family]

    def profile(self, model: str) -> Profile:
        known = self._profiles.get(model)
        if known is not None:
            return known
        profile = self._resolve(model)
        if len(self._profiles) >= MAX_REMEMBERED_MODELS:
            self._profiles.clear()
        self._profiles[model] = profile
        return profile

    def triton(self, model: str) -> TritonRules:
        return self.profile(model).triton

    def _resolve(self, model: str) -> Profile:
        rules = next((rules for matches, rules in self._models if matches(model)), None)
        window = (rules and rules.context_window) or self._defaults.context_window
        explicit = (rules and rules.max_output_tokens) or self._defaults.max_output_tokens
        cap = math.floor(window * self._fraction + 1e-9)
        return Profile(
            name=rules.name if rules else "default",
            length_cap=max(1, min(cap, explicit) if explicit else cap),
            min_output_tokens=rules.min_output_tokens if rules else None,
            default_output_tokens=rules.default_output_tokens if rules else None,
            pool=rules.pool if rules else None,
            triton=(rules and rules.triton) or self._defaults.triton,
            lowest_latency=self._lowest_latency(model),
        )

    def _facts(self, pool: Pool, spec: PoolSpec) -> PoolFacts:
        by_engine = self.engine_rules(pool.engine).schedules_by_priority
        own = pool.schedules_by_priority
        return PoolFacts(
            name=pool.name,
            engine=pool.engine,
            schedules_by_priority=by_engine if own is None else own,
            role=spec.role,
            variant=spec.variant,
            accuracy=spec.accuracy,
            hardware=spec.hardware,
            served_model=pool.served_model,
        )

    def _first(self, family: Family) -> PoolFacts | None:
        stable = (pool for pool in self.pools if pool.role is Role.STABLE)
        return next((pool for pool in stable if family in SPEAKS[pool.engine]), None)


class _Matcher(Struct, frozen=True):
    exact: frozenset[str]
    patterns: re.Pattern[str] | None

    def __call__(self, name: str) -> bool:
        return name in self.exact or (self.patterns is not None and self.patterns.match(name) is not None)


def _matcher(patterns: list[str]) -> _Matcher:
    globs = [fnmatch.translate(pattern) for pattern in patterns if set(pattern) & set("*?[")]
    exact = frozenset(pattern for pattern in patterns if not set(pattern) & set("*?["))
    return _Matcher(exact, re.compile("|".join(globs)) if globs else None)

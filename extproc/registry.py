"""Which models and pools exist, and what holds for a model by its name.

A name is looked up once and remembered in a bounded table: the rejected alternative, matching every
pattern on every request, grows with the number of profiles; an unbounded table grows with what clients send.
"""

from __future__ import annotations

import fnmatch
import math
import re
from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Struct
from pydantic import AfterValidator, Field

from extproc.model.config import Config, Name, Tokens
from extproc.model.names import SPEAKS, Dialect, Engine, Family

MAX_REMEMBERED_MODELS = 4096


def _endpoint(url: str) -> str:
    parts = urlsplit(url)
    more = parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc
    if parts.scheme not in ("http", "https") or not parts.hostname or more:
        raise ValueError("allowed: http://host:port or https://host:port, without a path, query or user")
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise ValueError("allowed: a port from 1 to 65535")
    return url


class Pool(Config):
    """Endpoints of one engine behind one Envoy cluster of the same name."""

    name: Name
    engine: Engine = Field(strict=False)
    endpoints: Annotated[list[Annotated[str, AfterValidator(_endpoint)]], Field(min_length=1)]
    schedules_by_priority: bool | None = None


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
    name: str
    engine: Engine
    schedules_by_priority: bool


class Registry:
    """Looks up profiles by model name and pools by name or API family."""

    def __init__(
        self,
        *,
        defaults: ModelDefaults,
        models: list[ModelRules],
        pools: list[Pool],
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
        self.pools = tuple(self._facts(pool) for pool in pools)
        self._by_name = {pool.name: pool for pool in self.pools}
        self._by_family = {family: self._first(family) for family in Family}

    def engine_rules(self, engine: Engine) -> EngineRules:
        rules: EngineRules = getattr(self._engines, engine.value)
        return rules

    def pool(self, name: str) -> PoolFacts | None:
        return self._by_name.get(name)

    def pool_for(self, family: Family) -> PoolFacts | None:
        """The first pool whose engine speaks this API family."""
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

    def _facts(self, pool: Pool) -> PoolFacts:
        by_engine = self.engine_rules(pool.engine).schedules_by_priority
        own = pool.schedules_by_priority
        return PoolFacts(pool.name, pool.engine, by_engine if own is None else own)

    def _first(self, family: Family) -> PoolFacts | None:
        return next((pool for pool in self.pools if family in SPEAKS[pool.engine]), None)


class _Matcher(Struct, frozen=True):
    exact: frozenset[str]
    patterns: re.Pattern[str] | None

    def __call__(self, name: str) -> bool:
        return name in self.exact or (self.patterns is not None and self.patterns.match(name) is not None)


def _matcher(patterns: list[str]) -> _Matcher:
    globs = [fnmatch.translate(pattern) for pattern in patterns if set(pattern) & set("*?[")]
    exact = frozenset(pattern for pattern in patterns if not set(pattern) & set("*?["))
    return _Matcher(exact, re.compile("|".join(globs)) if globs else None)

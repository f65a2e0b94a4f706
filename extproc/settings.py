"""The frozen config tree, read from YAML laid over the shipped defaults. Every mistake is found at once."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Struct
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from extproc import pools, yaml_text
from extproc.alerts import AlertsConfig
from extproc.control import HealthConfig, TelemetryConfig, UsageConfig, WeightsConfig, XdsConfig
from extproc.detectors.settings import DriftConfig
from extproc.engines.joining import TERMS
from extproc.errors import ConfigError, Problem
from extproc.lengths import LengthsConfig
from extproc.model.config import Config, Name, problems_of
from extproc.model.names import RequestClass, Tier
from extproc.model.topology import Role, host_port
from extproc.parameters import Classify, InferenceParams, ParameterSet, Scenario
from extproc.pools import Pool, PoolDefaults, PoolSpec, Variant
from extproc.protect.settings import ProtectionConfig, SafeConfig
from extproc.registry import FIRST, NONE, Engines, ModelDefaults, ModelRules, Registry
from extproc.request.classify.intent import Intent, Unsure, no_time, nobody
from extproc.request.classify.label import Labels
from extproc.request.classify.rules import Rules
from extproc.request.classify.settings import IntentConfig
from extproc.request.classify.weights import Weights
from extproc.snapshot import Classifier, Limits, Snapshot
from extproc.tracing.settings import TracingConfig
from extproc.trust import Tenants, Trust, digest, tenant_name

C = TypeVar("C", bound=Config)

MAX_WORKERS = 256

NEEDS_RESTART = (
    "unknown_paths",
    "extra_paths",
    "failure_mode",
    "limits",
    "listeners",
    "transport",
    "workers",
    "audit",
    "shutdown_grace_s",
    "usage",
    "xds",
    "tracing",
    "logging",
)
"""Keys whose change Envoy or the sockets must follow as well."""


def _network(text: str) -> str:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        raise ValueError("allowed: an IP network such as 10.1.0.0/16 or ::1/128") from None
    return text


def _address(text: str) -> str:
    if text.startswith("unix:"):
        if len(text) > len("unix:"):
            return text
    elif host_port(text) is not None:
        return text
    raise ValueError("allowed: unix:PATH or HOST:PORT")


def _tcp_address(text: str) -> str:
    if text.startswith("unix:"):
        raise ValueError("allowed: HOST:PORT")
    return _address(text)


def _served_path(text: str) -> str:
    if not text.startswith("/") or "*" in text[:-1]:
        raise ValueError("allowed: a path, or a prefix ending in *")
    return text


Address = Annotated[str, AfterValidator(_address)]
TcpAddress = Annotated[str, AfterValidator(_tcp_address)]


class SecretRef(Config):
    """Where a secret is read from: an environment variable or a file, never a value."""

    env: str | None = None
    file: str | None = None

    @model_validator(mode="after")
    def _one_place(self) -> SecretRef:
        if (self.env is None) == (self.file is None):
            raise ValueError("allowed: exactly one of env, file")
        return self


def _identity(text: str) -> str:
    if not text or text != text.strip():
        # A peer without a certificate has the empty name.
        raise ValueError("allowed: a URI SAN or a subject, without blanks around it")
    return text


class TrustConfig(Config):
    tokens: list[SecretRef]
    sources: list[Annotated[str, AfterValidator(_network)]]
    identities: list[Annotated[str, AfterValidator(_identity)]]


class TenantsConfig(Config):
    key_header: Annotated[str, Field(pattern="^[a-z0-9-]+$")]
    keys: list[SecretRef]
    classes: dict[str, Annotated[RequestClass, Field(strict=False)]]


class LimitsConfig(Config):
    """Bytes and counts. The body limit is Envoy's as well (see `envoy/envoy.yaml`)."""

    max_body_bytes: Annotated[int, Field(ge=1024, le=1 << 30)]
    max_keys: Annotated[int, Field(ge=16, le=100_000)]


class ListenersConfig(Config):
    ext_proc: Address
    control: Address
    admin: TcpAddress
    metrics: TcpAddress | None
    envoy: TcpAddress
    envoy_admin: Address


class AuditConfig(Config):
    path: str
    max_bytes: Annotated[int, Field(ge=4096)]
    keep: Annotated[int, Field(ge=1, le=1000)]
    max_pending: Annotated[int, Field(ge=1)]


class LoggingConfig(Config):
    """How lines on stderr look; which of them there are is `--log-level`."""

    format: Literal["console", "json"]


class WebhookConfig(Config):
    """Where incidents are sent, both by reference; `token` becomes `Authorization: Bearer`."""

    url: SecretRef
    token: SecretRef | None = None


def _workers(value: object) -> object:
    if value == "auto" or (type(value) is int and 1 <= value <= MAX_WORKERS):
        return value
    raise ValueError(f"allowed: auto, or 1 to {MAX_WORKERS}")


class Settings(Config):
    parameter_set: Name
    inference_params: InferenceParams
    scenarios: dict[Name, Scenario]
    classify: Classify
    engines: Engines
    default_model: ModelDefaults
    models: list[ModelRules]
    extra_models: list[ModelRules]
    pools: list[Pool]
    pool_defaults: PoolDefaults
    default_pool: Name
    variants: dict[Name, Variant]
    accuracy_floors: dict[Name, Annotated[float, Field(gt=0, le=1)]]
    telemetry: TelemetryConfig
    health: HealthConfig
    weights: WeightsConfig
    usage: UsageConfig
    intent: IntentConfig
    protection: ProtectionConfig
    drift: DriftConfig
    lengths: LengthsConfig
    webhook: WebhookConfig | None
    alerts: AlertsConfig
    xds: XdsConfig
    trust: TrustConfig
    tenants: TenantsConfig
    unknown_paths: Literal["pass", "reject"]
    extra_paths: list[Annotated[str, AfterValidator(_served_path)]]
    encoded_bodies: Literal["pass", "reject"]
    failure_mode: Literal["open", "closed"]
    limits: LimitsConfig
    listeners: ListenersConfig
    transport: Literal["fast", "grpc"]
    workers: Annotated[Literal["auto"] | int, BeforeValidator(_workers)]
    audit: AuditConfig
    tracing: TracingConfig
    logging: LoggingConfig
    shutdown_grace_s: Annotated[float, Field(ge=0, le=3600)]

    def parameters(self) -> ParameterSet:
        return ParameterSet(
            name=self.parameter_set,
            inference_params=self.inference_params,
            scenarios=self.scenarios,
            classify=self.classify,
        )

    def pool_specs(self) -> tuple[PoolSpec, ...]:
        return pools.specs(self.pools, self.pool_defaults, self.variants)


class Secrets(Config):
    """Values behind the references, in the order of the settings: caller tokens and tenant keys."""

    tokens: list[bytes]
    tenant_keys: list[bytes]


def load(text: bytes | str) -> Settings:
    """Settings from a user's YAML over the shipped one; ConfigError names every mistake."""
    tree = merged(yaml_text.mapping(defaults_text()), yaml_text.mapping(text))
    try:
        settings = parsed(Settings, tree)
    except ConfigError as error:
        raise ConfigError((*error.problems, *_unknown_scenarios(tree))) from None
    problems = (*_unknown_scenarios(tree), *cross_check(settings))
    if problems:
        raise ConfigError(problems)
    return settings


def parsed(kind: type[C], tree: Mapping[str, Any], *, at: str = "") -> C:
    """A config of this kind; ConfigError with every mistake in the tree, below the path `at`."""
    try:
        return kind.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(problems_of(error, at=at)) from None


def defaults_text() -> bytes:
    return resources.files("extproc").joinpath("extproc.yaml").read_bytes()


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings merge key by key; anything else is replaced."""
    result = dict(base)
    for key, value in over.items():
        known = result.get(key)
        both = isinstance(known, Mapping) and isinstance(value, Mapping)
        result[key] = merged(known, value) if both else value  # type: ignore[arg-type]
    return result


def cross_check(settings: Settings) -> Iterable[Problem]:
    """Mistakes between keys that each are well-formed."""
    yield from _tier_names(settings)
    yield from pools.problems(settings.pools, settings.pool_defaults, settings.variants)
    yield from _pool_names(settings)
    yield from _control(settings)
    yield from _lengths(settings)
    batch = settings.inference_params.batch
    if batch.min_size > batch.max_size:
        yield Problem("inference_params.batch.min_size", f"allowed: at most max_size ({batch.max_size})")
    line = [point.temperature for point in settings.inference_params.coupling.line]
    if line != sorted(set(line)):
        yield Problem("inference_params.coupling.line", "allowed: ascending temperatures")
    rules = [rule.name for rule in settings.classify.all_rules()]
    for name in sorted({name for name in rules if rules.count(name) > 1}):
        yield Problem("classify.rules", f"the name {name!r} stands twice")


def _lengths(settings: Settings) -> Iterable[Problem]:
    lengths = settings.lengths
    if lengths.min_samples > lengths.window:
        yield Problem("lengths.min_samples", f"allowed: at most window ({lengths.window})")


def _control(settings: Settings) -> Iterable[Problem]:
    telemetry, weights, health = settings.telemetry, settings.weights, settings.health
    if telemetry.neutral_after_intervals <= telemetry.stale_after_intervals:
        stale = f"{telemetry.stale_after_intervals:g}"
        yield Problem("telemetry.neutral_after_intervals", f"allowed: above stale_after_intervals ({stale})")
    if weights.memory + weights.latency <= 0:
        yield Problem("weights", "allowed: at least one of memory, latency above 0")
    if health.timeout_s > health.interval_s:
        yield Problem("health.timeout_s", f"allowed: at most interval_s ({health.interval_s:g})")
    for term in telemetry.prometheus.queries if telemetry.prometheus else ():
        if term not in TERMS:
            yield Problem(f"telemetry.prometheus.queries.{term}", f"no such term; allowed: {', '.join(TERMS)}")


def _unknown_scenarios(tree: Mapping[str, Any]) -> Iterable[Problem]:
    """Scenarios that somebody names and nobody defines, in a tree whose shapes are perhaps not all right."""
    known = tree.get("scenarios")
    if not isinstance(known, dict):
        return
    for path, name in _named_scenarios(tree):
        if isinstance(name, str) and name not in known:
            yield Problem(path, f"no scenario {name!r}; allowed: {', '.join(map(str, known))}")


def _named_scenarios(tree: Mapping[str, Any]) -> Iterable[tuple[str, object]]:
    classify = _below(tree, "classify")
    for key in ("rules", "extra_rules"):
        for index, rule in enumerate(_list(classify.get(key))):
            if isinstance(rule, dict):
                yield f"classify.{key}.{index}.scenario", rule.get("scenario")
    yield "classify.default_scenario", classify.get("default_scenario")
    for index, name in enumerate(_list(_below(tree, "inference_params", "max_tokens").get("whitelist"))):
        yield f"inference_params.max_tokens.whitelist.{index}", name
    for name in sorted(map(str, _below(tree, "accuracy_floors"))):
        yield f"accuracy_floors.{name}", name


def _below(tree: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """The mapping there, {} where there is none."""
    for key in keys:
        found = tree.get(key)
        tree = found if isinstance(found, dict) else {}
    return tree


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _tier_names(settings: Settings) -> Iterable[Problem]:
    for name in sorted(settings.scenarios.keys() & {tier.value for tier in Tier}):
        yield Problem(f"scenarios.{name}", "a tier has this name; labels could not tell them apart")


def _pool_names(settings: Settings) -> Iterable[Problem]:
    """Who names a pool names one that exists and that serves models by name."""
    defaults = settings.pool_defaults
    stable = [pool.name for pool in settings.pools if (pool.role or defaults.role) is Role.STABLE]
    allowed = f"allowed: {', '.join(stable) or 'none'}"
    for key in ("models", "extra_models"):
        for index, model in enumerate(getattr(settings, key)):
            if model.pool is not None and model.pool not in stable:
                yield Problem(f"{key}.{index}.pool", f"no stable pool {model.pool!r}; {allowed}")
    if settings.default_pool not in (FIRST, NONE, *stable):
        yield Problem("default_pool", f"no stable pool {settings.default_pool!r}; {allowed}, {FIRST}, {NONE}")
    yield from _patterns(settings)
    known = [pool.name for pool in settings.pools]
    for index, view in enumerate(settings.xds.views):
        for name in sorted(set(view.pools) - set(known)):
            yield Problem(f"xds.views.{index}.pools", f"no pool {name!r}; allowed: {', '.join(known) or 'none'}")


def _patterns(settings: Settings) -> Iterable[Problem]:
    """A model's name leads to one pool, whatever the order of the profiles."""
    seen: dict[str, str] = {}
    for key in ("extra_models", "models"):
        for index, model in enumerate(getattr(settings, key)):
            for pattern in model.match if model.pool is not None else ():
                first = seen.setdefault(pattern, model.pool)
                if first != model.pool:
                    told = f"{pattern!r} names two pools, {first!r} and {model.pool!r}"
                    yield Problem(f"{key}.{index}.match", told)


def changed_needing_restart(old: Settings, new: Settings) -> tuple[str, ...]:
    return tuple(key for key in NEEDS_RESTART if getattr(old, key) != getattr(new, key))


class Reading(Struct, frozen=True):
    """How texts are read: the intent model's weights, None = rules alone; seconds of a clock; who is told of texts
    that it is unsure about."""

    weights: Weights | None = None
    timer: Callable[[], float] = no_time
    unsure: Unsure = nobody


RULES_ALONE = Reading()


def snapshot(settings: Settings, secrets: Secrets, *, generation: int, reading: Reading = RULES_ALONE) -> Snapshot:
    """The world view that requests are judged by."""
    parameters = settings.parameters()
    fast = settings.inference_params.lowest_latency
    safe = safe_set(parameters, settings.protection.safe_set)
    return Snapshot(
        generation=generation,
        parameter_set=parameters.label(),
        parameters=parameters,
        registry=Registry(
            defaults=settings.default_model,
            models=[*settings.extra_models, *settings.models],
            pools=settings.pools,
            specs=settings.pool_specs(),
            default_pool=settings.default_pool,
            engines=settings.engines,
            context_fraction=settings.inference_params.max_tokens.context_fraction,
            lowest_latency_models=fast.models,
        ),
        trust=_trust(settings.trust, secrets.tokens),
        tenants=_tenants(settings.tenants, secrets.tenant_keys),
        classifiers=classifiers(settings, reading),
        limits=Limits(settings.limits.max_body_bytes, settings.limits.max_keys),
        lowest_latency_paths=tuple(fast.paths),
        encoded_bodies_pass=settings.encoded_bodies == "pass",
        safe=safe,
        safe_set=safe.label(),
        degrade=settings.protection.degrade,
        fallback=settings.protection.fallback,
    )


def classifiers(settings: Settings, reading: Reading) -> tuple[Classifier, ...]:
    """In the order of their authority."""
    rules, scenarios = settings.classify, settings.scenarios
    first = (
        Labels(scenarios, default_scenario=rules.default_scenario),
        Rules(rules.all_rules(), scenarios, default_scenario=rules.default_scenario),
    )
    if reading.weights is None:
        return first
    intent = Intent(
        reading.weights,
        scenarios,
        default_tier=rules.default_tier,
        default_scenario=rules.default_scenario,
        min_confidence=rules.min_confidence,
        deadline_s=settings.intent.deadline_ms / 1000,
        timer=reading.timer,
        unsure=reading.unsure if settings.intent.keep_unsure else nobody,
    )
    return *first, intent


def safe_set(active: ParameterSet, config: SafeConfig) -> ParameterSet:
    """The static parameters while dynamic ones are off: the shipped ones, shorter and cooler, whatever is active.

    Which scenarios there are and how they are told stays: that is no parameter of the engine.
    """
    shipped = _shipped_params()
    lengths = shipped.max_tokens.model_copy(update={"default": config.max_tokens})
    tiers = ("strict", "normal", "creative")
    cooled = {name: min(getattr(shipped.temperature, name), config.temperature) for name in tiers}
    params = shipped.model_copy(
        update={"max_tokens": lengths, "temperature": shipped.temperature.model_copy(update=cooled)}
    )
    scenarios = {
        name: each.model_copy(update={"length": min(each.length or config.max_tokens, config.max_tokens)})
        for name, each in active.scenarios.items()
    }
    return ParameterSet(name=config.name, inference_params=params, scenarios=scenarios, classify=active.classify)


@cache
def _shipped_params() -> InferenceParams:
    return parsed(InferenceParams, yaml_text.mapping(defaults_text())["inference_params"])


def _trust(config: TrustConfig, tokens: list[bytes]) -> Trust:

    return Trust(
        token_digests=tuple(digest(token) for token in tokens),
        sources=tuple(ipaddress.ip_network(source) for source in config.sources),
        identities=frozenset(config.identities),
    )


def _tenants(config: TenantsConfig, keys: list[bytes]) -> Tenants:

    return Tenants(config.key_header, {digest(key): tenant_name(key) for key in keys}, config.classes)

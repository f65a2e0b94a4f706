"""What scoring is told of an endpoint, out of everything that is known of it.

The engine's own page comes first, then the sources that tell of many endpoints, then what the engine sent along
with answers. One that falls silent is not replaced by the next: an engine's share of KV blocks and a GPU's share of
bytes are not the same number, and an old reading fades by itself.

A source that goes on saying the same while the endpoint served requests is frozen: its reading is as old as its
last change. The rejected alternative, any page that stays the same, makes every idle engine a frozen one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from extproc.control import TelemetryConfig
from extproc.engines.joining import TERMS, Join, keyed, names
from extproc.engines.reading import OWN
from extproc.loops import targets
from extproc.loops.latency import SERVED_STEP_S, Latency, LoadReport
from extproc.loops.telemetry import Look
from extproc.model.telemetry import EngineSample
from extproc.model.topology import Endpoint
from extproc.pools import PoolSpec
from extproc.protect import degrade
from extproc.scoring.values import EndpointInput, Reading

MIN_REQUESTS = 20
"""With a duration, before the P99 of a window is more than the slowest of a few."""

LOG_DELAY_S = 1.0
"""So much later than an engine's page a request may be told of here: Envoy collects its log for a moment."""

KV_USAGE = ("named_metrics.kv_cache_usage_perc", "kv_cache_usage_perc")

LookAt = Callable[[str], Look]
"""What is known of a target."""


class Told(Struct, frozen=True, gc=False):
    """What a look at one source says of an endpoint."""

    look: Look
    sample: EngineSample


class Shared(Struct, frozen=True):
    """Looks at sources that tell of many endpoints, arranged by what endpoints are called.

    `told`: by join and name, each with the place of its source in the order of trust.
    """

    looks: tuple[Look, ...] = ()
    joins: tuple[Join, ...] = ()
    told: Mapping[tuple[Join, str], Sequence[tuple[int, Told]]] = {}

    def of(self, endpoint: Endpoint) -> Sequence[Told]:
        found: list[tuple[int, Told]] = []
        for join in self.joins:
            called = ((join, name) for name in names(endpoint, join))
            found += next((self.told[name] for name in called if name in self.told), ())
        return [told for _, told in sorted(found, key=_place)]


def _place(found: tuple[int, Told]) -> int:
    return found[0]


def arranged(sources: Sequence[tuple[Look, Join]]) -> Shared:
    told: dict[tuple[Join, str], list[tuple[int, Told]]] = {}
    for place, (look, join) in enumerate(sources):
        for name, sample in keyed(look.samples, join).items():
            told.setdefault((join, name), []).append((place, Told(look, sample)))
    joins = tuple(dict.fromkeys(join for _, join in sources))
    return Shared(tuple(look for look, _ in sources), joins, told)


class Readings:
    """The reconciler's inputs. `look` knows targets by their keys, `healthy` endpoints by theirs.

    `telemetry` and `latency` may be replaced at any time.
    """

    def __init__(
        self, telemetry: TelemetryConfig, *, look: LookAt, healthy: Callable[[str], bool], latency: Latency
    ) -> None:
        self.telemetry = telemetry
        self._look = look
        self._healthy = healthy
        self.latency = latency
        self._shared = Shared()

    def __call__(self, spec: PoolSpec, endpoints: Iterable[Endpoint], *, now: float) -> Sequence[EndpointInput]:
        shared = self._arranged()
        return [self._input(spec, endpoint, shared, now) for endpoint in endpoints]

    def loads(self, spec: PoolSpec, endpoints: Iterable[Endpoint], now: float) -> Iterator[float | None]:
        """How loaded each healthy endpoint is, a share of what it can bear; None where nothing fresh is known."""
        shared = self._arranged()
        for endpoint in endpoints:
            if self._healthy(targets.own(spec.name, endpoint)):
                yield self._load(spec, self._fresh(spec.name, endpoint, shared, now))

    def terms(self, pool: str, endpoint: Endpoint, *, now: float) -> Mapping[str, float]:
        """All that is known of it and not too old to be believed, by the names of `TERMS`."""
        fresh = self._fresh(pool, endpoint, self._arranged(), now)
        return {term: value for term in TERMS if (value := _first(fresh, term)) is not None}

    def _fresh(self, pool: str, endpoint: Endpoint, shared: Shared, now: float) -> list[EngineSample]:
        oldest = now - self.telemetry.neutral_after_intervals * self.telemetry.interval_s
        sources = self._sources(pool, endpoint, shared)
        return [told.sample for told in sources if told_at(endpoint, told.look, self.latency) >= oldest]

    @staticmethod
    def _load(spec: PoolSpec, fresh: Sequence[EngineSample]) -> float | None:
        waiting, running = _first(fresh, "waiting"), _first(fresh, "running")
        queue = None if running is None else (running + (waiting or 0.0)) / spec.max_concurrency
        return degrade.load(_first(fresh, "gpu_utilisation"), _first(fresh, "kv_usage"), queue)

    def _arranged(self) -> Shared:
        """Anew only where a source was looked at since."""
        sources = [(self._look(key), join) for key, join in targets.shared(self.telemetry)]
        known = self._shared
        same = len(sources) == len(known.looks) and all(
            look is before for (look, _), before in zip(sources, known.looks, strict=True)
        )
        if not same:
            self._shared = arranged(sources)
        return self._shared

    def _input(self, spec: PoolSpec, endpoint: Endpoint, shared: Shared, now: float) -> EndpointInput:
        healthy = self._healthy(targets.own(spec.name, endpoint))
        sources = self._sources(spec.name, endpoint, shared)
        return endpoint_input(endpoint, spec, sources, self.latency, healthy=healthy, now=now)

    def _sources(self, pool: str, endpoint: Endpoint, shared: Shared) -> list[Told]:
        """The most trusted first."""
        return [*self._own(pool, endpoint), *(shared.of(endpoint) if shared.joins else ())]

    def _own(self, pool: str, endpoint: Endpoint) -> Iterator[Told]:
        yield from _told(self._look(targets.own(pool, endpoint)))
        if self.telemetry.triton_statistics:
            yield from _told(self._look(targets.statistics(pool, endpoint)))


def _first(samples: Iterable[EngineSample], term: str) -> float | None:
    """Of the most trusted source that knows it."""
    return next((value for sample in samples if (value := getattr(sample, term)) is not None), None)


def _told(look: Look) -> Iterator[Told]:
    if (sample := look.samples.get(OWN)) is not None:
        yield Told(look, sample)


def endpoint_input(
    endpoint: Endpoint, spec: PoolSpec, sources: Sequence[Told], latency: Latency, *, healthy: bool, now: float
) -> EndpointInput:
    """`sources`: the most trusted first."""
    return EndpointInput(
        key=endpoint.key,
        healthy=healthy,
        memory=_memory(endpoint, sources, latency),
        p99_s=_p99(endpoint, sources, latency, now),
        max_acceptable_p99_s=spec.max_acceptable_p99_s,
    )


def _memory(endpoint: Endpoint, sources: Sequence[Told], latency: Latency) -> Reading | None:
    for told in sources:
        if told.sample.memory is not None:
            return Reading(told.sample.memory, told_at(endpoint, told.look, latency))
    return _reported(latency.load_report(endpoint.key))


def _reported(load: LoadReport | None) -> Reading | None:
    metrics: Mapping[str, float] = load.metrics if load else {}
    value = next((metrics[name] for name in KV_USAGE if name in metrics), None)
    return None if value is None or load is None else Reading(value, load.at)


def _p99(endpoint: Endpoint, sources: Sequence[Told], latency: Latency, now: float) -> Reading | None:
    """Envoy's own measure, which includes the way there; else what a source says."""
    seen = latency.tail(endpoint.key, now=now)
    if seen.p99_s is not None and seen.last_at is not None and seen.timed >= MIN_REQUESTS:
        return Reading(seen.p99_s, seen.last_at)
    for told in sources:
        if told.sample.p99_s is not None:
            return Reading(told.sample.p99_s, told_at(endpoint, told.look, latency))
    return None


def told_at(endpoint: Endpoint, look: Look, latency: Latency) -> float:
    """When a look was still telling something new.

    A request counts against a page that stayed the same only if it surely ended between the page's last change and
    the last look at it: one that is told of late was on the page already, one after the look cannot be on it.
    """
    taken_at, changed_at = look.taken_at, look.page_changed_at
    assert taken_at is not None, "a look with samples was taken"
    if changed_at is None or changed_at >= taken_at:
        return taken_at
    served = latency.served_since(endpoint.key, changed_at + LOG_DELAY_S, now=taken_at - SERVED_STEP_S)
    return changed_at if served else taken_at

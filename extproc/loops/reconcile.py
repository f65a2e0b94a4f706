"""The one publisher: each tick weighs every pool's endpoints and publishes what Envoy is to know.

Resources that `check` refuses are not published: what was published last stays, and the refusal is counted. Without
any pool nothing is published: Envoy would drop all it has.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from extproc.control import ViewConfig
from extproc.deployment import Standing, Standings, engines
from extproc.errors import Problem
from extproc.model.topology import Endpoint
from extproc.model.xds import Resources
from extproc.pools import GRPC_SUFFIX, PoolSpec
from extproc.resources.check import check
from extproc.resources.plan import EngineCluster
from extproc.resources.world import NO_LIMITS, Fixed, resources
from extproc.scoring.values import EndpointInput, PoolWeights, ScoringRules
from extproc.scoring.weigh import weigh
from extproc.settings import Settings

logger = logging.getLogger("extproc.loops.reconcile")


class Inputs(Protocol):
    """What is known of the endpoints of a pool, in their order."""

    def __call__(self, spec: PoolSpec, endpoints: Sequence[Endpoint], *, now: float) -> Sequence[EndpointInput]: ...


class PoolReport(Struct, frozen=True):
    """A pool after a tick; `endpoints` in the order of `weights.weights`."""

    name: str
    engine: str
    role: str
    endpoints: tuple[Endpoint, ...]
    weights: PoolWeights
    measured: bool = True
    """Whether anything is known of any endpoint: scores of a pool that nobody measured are none."""
    unhealthy: bool = False
    """Every endpoint fails its checks. They all stay in the traffic: no endpoint at all answers nothing but 503."""


class Report(Struct, frozen=True):
    """One tick: `at` in monotonic seconds; `problems` where nothing was published because of them."""

    at: float
    generation: int
    pools: tuple[PoolReport, ...]
    problems: tuple[Problem, ...] = ()


class View(Struct, frozen=True):
    """One kind of Envoy, by patterns of its node, and what it is told of; `pools` None = all of them."""

    node_id: str
    node_cluster: str
    pools: frozenset[str] | None
    parts: Fixed = Fixed({}, {}, {})

    def sees(self, engine: EngineCluster) -> bool:
        pool = engine.name.removesuffix(GRPC_SUFFIX) if engine.http2 else engine.name
        return self.pools is None or pool in self.pools


class World(Struct, frozen=True):
    """What one config makes of Envoy, before endpoints."""

    settings: Settings
    views: tuple[View, ...]


Publish = Callable[[Sequence[Resources]], None]
"""Takes the resources of every view, in the order of `World.views`."""


class Reconciler:
    """Used from one event loop. `world` may be replaced at any time; weights of pools that stay go on."""

    def __init__(self, world: World, *, inputs: Inputs, publish: Publish) -> None:
        self.world = world
        self._inputs = inputs
        self._publish = publish
        self._shares: dict[str, Mapping[str, int]] = {}
        self._ticked_at: float | None = None
        self._generation = 0
        self._last: tuple[World, tuple[EngineCluster, ...], Mapping[str, int]] | None = None
        self.limits: Mapping[str, int] = NO_LIMITS
        """Requests of DEFAULT priority a pool takes, where that is not what the config says."""
        self._complaint: tuple[Problem, ...] = ()
        self.refused = 0

    def tick(self, endpoints: Mapping[str, tuple[Endpoint, ...]], *, now: float) -> Report:
        """Weigh, build, check, publish. `endpoints` by the pool's name."""
        settings = self.world.settings
        rules = scoring_rules(settings, since_s=None if self._ticked_at is None else now - self._ticked_at)
        self._ticked_at = now
        pools = tuple(
            self._weighed(spec, endpoints.get(spec.name, ()), rules, now) for spec in settings.pool_specs()
        )
        self._shares = {pool.name: pool.weights.shares for pool in pools}
        standings = {pool.name: standing(pool) for pool in pools}
        problems = self._published(standings)
        return Report(now, self._generation, pools, problems)

    def _weighed(
        self, spec: PoolSpec, endpoints: tuple[Endpoint, ...], rules: ScoringRules, now: float
    ) -> PoolReport:
        inputs = self._inputs(spec, endpoints, now=now)
        unhealthy = bool(inputs) and not any(each.healthy for each in inputs)
        if unhealthy:
            # Nobody would be left to ask. Perhaps it is the way of the checks that is broken: let Envoy try.
            inputs = [replace(each, healthy=True) for each in inputs]
        weights = weigh(inputs, self._shares.get(spec.name, {}), rules, now=now)
        measured = any(term.utility is not None for each in weights.weights for term in each.terms)
        return PoolReport(spec.name, spec.engine.value, spec.role.value, endpoints, weights, measured, unhealthy)

    def _published(self, standings: Standings) -> tuple[Problem, ...]:
        settings = self.world.settings
        clusters = engines(settings, standings, lb_policy=settings.weights.lb_policy)
        problems = () if self._known(clusters) else self._refused_or_published(clusters)
        if problems and problems != self._complaint:
            logger.error("not published: %s", "; ".join(map(str, problems[:5])))
        self._complaint = problems
        return problems

    def _known(self, clusters: tuple[EngineCluster, ...]) -> bool:
        return not clusters or (
            self._last is not None and self._last[0] is self.world and self._last[1:] == (clusters, self.limits)
        )

    def _refused_or_published(self, clusters: tuple[EngineCluster, ...]) -> tuple[Problem, ...]:
        """What could not be published is tried again at the next tick."""
        built = [self._built(view, clusters) for view in self.world.views]
        problems = tuple(problem for each in built for problem in check(each))
        if problems:
            self.refused += 1
            return problems
        self._generation += 1
        self._publish(built)
        self._last = (self.world, clusters, self.limits)
        return ()

    def _built(self, view: View, clusters: tuple[EngineCluster, ...]) -> Resources:
        seen = [each for each in clusters if view.sees(each)]
        limits = {
            each.name: self.limits[pool]
            for each in seen
            if (pool := each.name.removesuffix(GRPC_SUFFIX) if each.http2 else each.name) in self.limits
        }
        return resources(view.parts, seen, generation=self._generation + 1, limits=limits)


def standing(pool: PoolReport) -> tuple[Standing, ...]:
    """Endpoints with their weights. A share of zero is draining: Envoy takes no weight below 1."""
    pairs = zip(pool.endpoints, pool.weights.weights, strict=True)
    return tuple(Standing(endpoint, max(1, each.weight), each.draining) for endpoint, each in pairs)


def scoring_rules(settings: Settings, *, since_s: float | None = None) -> ScoringRules:
    """`since_s`: seconds since the tick before; one that comes early may move shares by so much less."""
    weights, telemetry = settings.weights, settings.telemetry
    part = 1.0 if since_s is None else min(1.0, max(0.0, since_s / telemetry.interval_s))
    return ScoringRules(
        memory_weight=weights.memory,
        latency_weight=weights.latency,
        interval_s=telemetry.interval_s,
        stale_after_intervals=telemetry.stale_after_intervals,
        neutral_after_intervals=telemetry.neutral_after_intervals,
        max_step=weights.max_step * part,
        min_change=weights.min_change,
    )


def views_of(configs: Sequence[ViewConfig]) -> tuple[View, ...]:
    """As configured; where nothing is, every Envoy sees everything."""
    if not configs:
        return (View("*", "*", None),)
    return tuple(View(each.node_id, each.node_cluster, frozenset(each.pools)) for each in configs)


def view_of(views: Sequence[View], node_id: str, node_cluster: str) -> int | None:
    """Which view an Envoy sees: the first whose patterns fit its node id and cluster; None = none."""
    for index, view in enumerate(views):
        if fnmatchcase(node_id, view.node_id) and fnmatchcase(node_cluster, view.node_cluster):
            return index
    return None

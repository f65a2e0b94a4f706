"""The one publisher: each tick weighs every pool's endpoints and publishes what Envoy is to know.

Resources that `check` refuses are not published: what was published last stays, and the refusal is counted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Protocol

from msgspec import Struct

from extproc.control import ViewConfig
from extproc.deployment import Standing, Standings, engines
from extproc.errors import Problem
from extproc.model.topology import Endpoint
from extproc.model.xds import Resources
from extproc.pools import PoolSpec
from extproc.resources.check import check
from extproc.resources.plan import EngineCluster
from extproc.resources.world import Fixed, resources
from extproc.scoring.values import EndpointInput, PoolWeights, ScoringRules
from extproc.scoring.weigh import weigh
from extproc.settings import Settings

logger = logging.getLogger("extproc.loops.reconcile")


class Inputs(Protocol):
    """What is known of one endpoint."""

    def __call__(self, endpoint: Endpoint, spec: PoolSpec, *, now: float) -> EndpointInput: ...


class PoolReport(Struct, frozen=True):
    """A pool after a tick; `endpoints` in the order of `weights.weights`."""

    name: str
    engine: str
    role: str
    endpoints: tuple[Endpoint, ...]
    weights: PoolWeights


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
        return self.pools is None or engine.name.removesuffix("-grpc") in self.pools or engine.name in self.pools


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
        self._generation = 0
        self._last: tuple[World, tuple[EngineCluster, ...]] | None = None
        self.refused = 0

    def tick(self, endpoints: Mapping[str, tuple[Endpoint, ...]], *, now: float) -> Report:
        """Weigh, build, check, publish. `endpoints` by the pool's name."""
        settings = self.world.settings
        rules = scoring_rules(settings)
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
        inputs = [self._inputs(endpoint, spec, now=now) for endpoint in endpoints]
        weights = weigh(inputs, self._shares.get(spec.name, {}), rules, now=now)
        return PoolReport(spec.name, spec.engine.value, spec.role.value, endpoints, weights)

    def _published(self, standings: Standings) -> tuple[Problem, ...]:
        settings = self.world.settings
        clusters = engines(settings, standings, lb_policy=settings.weights.lb_policy)
        if self._last is not None and self._last[0] is self.world and self._last[1] == clusters:
            return ()
        built = [self._built(view, clusters) for view in self.world.views]
        problems = tuple(problem for each in built for problem in check(each))
        if problems:
            self.refused += 1
            logger.error("not published: %s", "; ".join(map(str, problems[:5])))
            return problems
        self._generation += 1
        self._last = (self.world, clusters)
        self._publish(built)
        return ()

    def _built(self, view: View, clusters: tuple[EngineCluster, ...]) -> Resources:
        seen = [each for each in clusters if view.sees(each)]
        return resources(view.parts, seen, generation=self._generation + 1)


def standing(pool: PoolReport) -> tuple[Standing, ...]:
    """Endpoints with their weights. A share of zero is draining: Envoy takes no weight below 1."""
    pairs = zip(pool.endpoints, pool.weights.weights, strict=True)
    return tuple(Standing(endpoint, max(1, each.weight), each.draining) for endpoint, each in pairs)


def scoring_rules(settings: Settings) -> ScoringRules:
    weights, telemetry = settings.weights, settings.telemetry
    return ScoringRules(
        memory_weight=weights.memory,
        latency_weight=weights.latency,
        interval_s=telemetry.interval_s,
        stale_after_intervals=telemetry.stale_after_intervals,
        neutral_after_intervals=telemetry.neutral_after_intervals,
        max_step=weights.max_step,
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

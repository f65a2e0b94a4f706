"""Ticks: what is published and what is not, and how weights follow telemetry that fails, freezes and comes back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from extproc.deployment import engines, plan
from extproc.loops.latency import Latency
from extproc.loops.readings import Readings
from extproc.loops.reconcile import (
    PoolReport,
    Reconciler,
    Report,
    View,
    World,
    scoring_rules,
    standing,
    view_of,
    views_of,
)
from extproc.loops.telemetry import Look
from extproc.model.telemetry import EngineSample
from extproc.model.topology import Endpoint
from extproc.model.xds import Kind, Resources
from extproc.pools import PoolSpec
from extproc.resources.template import load_template
from extproc.resources.world import fixed
from extproc.scoring.values import EndpointInput, EndpointWeight, PoolWeights, Reading, WeightReason
from extproc.settings import Settings, load
from tests.windows.samples import sample

TEMPLATE = load_template()
FOLDER = Path("/run/extproc")
TICK_S = 5.0
A, B, C = (Endpoint(f"10.0.0.{number}", 8000) for number in (1, 2, 3))

CHAT = {"name": "chat", "engine": "vllm", "endpoints_file": "f"}
LONG = {"name": "long", "engine": "llamacpp", "endpoints_file": "g", "role": "long"}
TRITON = {"name": "triton", "engine": "triton", "endpoints_file": "h"}


def config(*pools: dict[str, Any], **more: Any) -> Settings:
    return load(yaml.safe_dump({"pools": list(pools)} | more))


def world_of(settings: Settings) -> World:
    every = engines(settings, {}, lb_policy=settings.weights.lb_policy)

    def with_parts(view: View) -> View:
        seen = tuple(each for each in every if view.sees(each))
        return replace(view, parts=fixed(TEMPLATE, plan(settings, FOLDER, seen)))

    return World(settings, tuple(map(with_parts, views_of(settings.xds.views))))


class Bench:
    """A reconciler with a clock that a test moves, inputs that it scripts, and all that is published."""

    def __init__(self, settings: Settings | None = None, **endpoints: Sequence[Endpoint]) -> None:
        self.now = 1000.0
        self.endpoints = {name: tuple(found) for name, found in (endpoints or {"chat": (A, B, C)}).items()}
        self.memory: dict[str, Reading | float | None] = {}
        self.p99_s: dict[str, float] = {}
        self.unhealthy: set[str] = set()
        self.published: list[list[Resources]] = []
        self.problem: Exception | None = None
        self.reconciler = Reconciler(world_of(settings or config(CHAT)), inputs=self.inputs, publish=self.publish)

    def inputs(self, spec: PoolSpec, endpoints: Sequence[Endpoint], *, now: float) -> list[EndpointInput]:
        return [self.input(spec, each.key, now) for each in endpoints]

    def input(self, spec: PoolSpec, key: str, now: float) -> EndpointInput:
        """A memory that is given as a number was read a second ago."""
        memory = self.memory.get(key)
        return EndpointInput(
            key=key,
            healthy=key not in self.unhealthy,
            memory=Reading(memory, now - 1) if isinstance(memory, float | int) else memory,
            p99_s=Reading(self.p99_s[key], now - 1) if key in self.p99_s else None,
            max_acceptable_p99_s=spec.max_acceptable_p99_s,
        )

    def publish(self, built: Sequence[Resources]) -> None:
        if self.problem is not None:
            raise self.problem
        self.published.append(list(built))

    def tick(self, times: int = 1, *, after_s: float = TICK_S) -> Report:
        for _ in range(times):
            self.now += after_s
            report = self.reconciler.tick(self.endpoints, now=self.now)
        return report

    def weights(self, pool: str = "chat") -> list[int]:
        """As Envoy has them, 0 for a draining one."""
        return [0 if "health_status" in each else each["load_balancing_weight"] for each in self.placed(pool)]

    def placed(self, pool: str = "chat", view: int = 0) -> list[dict[str, Any]]:
        assignment = self.published[-1][view].of(Kind.EDS)[pool]
        found: list[dict[str, Any]] = [each for group in assignment["endpoints"] for each in group["lb_endpoints"]]
        return found

    def names(self, view: int = 0) -> set[str]:
        return set(self.published[-1][view].of(Kind.CDS))


@pytest.fixture
def bench() -> Bench:
    return Bench()


# --- what is published


def test_the_first_tick_publishes_equal_weights(bench: Bench) -> None:
    report = bench.tick()
    assert bench.weights() == [334, 333, 333]
    assert (report.generation, report.problems, report.at) == (1, (), bench.now)
    assert [each.name for each in report.pools] == ["chat"]


def test_an_unchanged_tick_publishes_nothing(bench: Bench) -> None:
    bench.memory = {A.key: 0.2, B.key: 0.4, C.key: 0.9}
    bench.tick(8)
    count = len(bench.published)
    assert bench.tick(5).generation == count
    assert len(bench.published) == count


def test_a_change_that_is_too_small_publishes_nothing(bench: Bench) -> None:
    bench.memory = {A.key: 0.4, B.key: 0.4, C.key: 0.4}
    bench.tick(3)
    count = len(bench.published)
    bench.memory[A.key] = 0.405
    bench.tick(3)
    assert len(bench.published) == count


def test_generations_only_grow(bench: Bench) -> None:
    for memory in (0.1, 0.9, 0.1, 0.9):
        bench.memory[A.key] = memory
        bench.memory[B.key] = 0.5
        bench.tick(2)
    generations = [built[0].generation for built in bench.published]
    assert generations == list(range(1, len(generations) + 1))
    assert len(generations) > 4


def test_another_config_is_published_even_with_the_same_endpoints(bench: Bench) -> None:
    bench.tick(3)
    bench.reconciler.world = world_of(config({**CHAT, "limits": {"max_concurrency": 1, "max_requests": 7}}))
    assert bench.tick().generation == 2
    layer = bench.published[-1][0].of(Kind.RTDS)["llm_runtime"]["layer"]
    assert layer["circuit_breakers.chat.default.max_requests"] == 7


def test_both_clusters_of_a_triton_have_the_same_weights_and_health() -> None:
    found = [Endpoint(f"10.0.0.{number}", 8000, 8001) for number in (1, 2, 3)]
    bench = Bench(config(TRITON), triton=found)
    bench.memory = {found[0].key: 0.1, found[1].key: 0.8}
    bench.unhealthy = {found[2].key}
    bench.tick(6)
    assert bench.weights("triton") == bench.weights("triton-grpc")
    assert bench.weights("triton")[2] == 0
    ports = {each["endpoint"]["address"]["socket_address"]["port_value"] for each in bench.placed("triton-grpc")}
    assert ports == {8001}


def test_without_pools_nothing_is_published_and_nothing_is_wrong(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(config())
    report = bench.tick(3)
    assert (report.generation, report.problems, report.pools) == (0, (), ())
    assert (bench.published, bench.reconciler.refused, caplog.records) == ([], 0, [])


def test_the_last_pools_clusters_stay_when_the_config_names_none_any_more(bench: Bench) -> None:
    bench.tick()
    bench.reconciler.world = world_of(config())
    assert bench.tick().problems == ()
    assert len(bench.published) == 1


def test_a_pool_without_endpoints_has_an_empty_assignment() -> None:
    bench = Bench(config(CHAT, LONG), chat=(A,))
    bench.tick()
    assert bench.placed("long") == []
    assert len(bench.placed("chat")) == 1


# --- what is refused


@pytest.fixture
def twice(bench: Bench) -> Bench:
    """Endpoints that Envoy would refuse."""
    bench.tick()
    bench.endpoints = {"chat": (A, A, B)}
    return bench


def test_what_envoy_would_refuse_is_not_published_and_counts(
    twice: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    report = twice.tick(4)
    assert [problem.path for problem in report.problems] == [
        "endpoints/chat.endpoints[0].lb_endpoints[1].endpoint.address"
    ]
    assert len(twice.published) == 1
    assert (report.generation, twice.reconciler.refused) == (1, 4)
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1


def test_after_a_refusal_the_next_good_one_is_published(twice: Bench, caplog: pytest.LogCaptureFixture) -> None:
    twice.tick(2)
    twice.endpoints = {"chat": (A, B)}
    assert twice.tick().problems == ()
    assert len(twice.weights()) == 2
    twice.endpoints = {"chat": (A, A)}
    twice.tick()
    assert len(caplog.records) == 2


def test_what_could_not_be_published_is_tried_again(bench: Bench) -> None:
    bench.problem = RuntimeError("cannot encode")
    for _ in range(2):
        with pytest.raises(RuntimeError):
            bench.tick()
    bench.problem = None
    bench.tick()
    assert len(bench.published) == 1
    assert bench.weights() == [334, 333, 333]


# --- zero shares and draining


def test_an_unhealthy_endpoint_drains_with_a_weight_of_one(bench: Bench) -> None:
    bench.tick()
    bench.unhealthy = {B.key}
    report = bench.tick()
    draining = bench.placed()[1]
    assert (draining["health_status"], draining["load_balancing_weight"]) == ("DRAINING", 1)
    assert sum(bench.weights()) == 1000
    assert report.pools[0].weights.weights[1].reason is WeightReason.DRAINING


def test_where_every_endpoint_fails_its_checks_all_stay_in_the_traffic(bench: Bench) -> None:
    """It may be the way of the checks that is broken."""
    bench.memory = {A.key: 0.2, B.key: 0.5, C.key: 0.5}
    bench.tick(6)
    before = bench.weights()
    bench.unhealthy = {A.key, B.key, C.key}
    report = bench.tick()
    assert report.pools[0].unhealthy
    assert bench.weights() == before
    bench.unhealthy = {A.key, B.key}
    report = bench.tick()
    assert not report.pools[0].unhealthy
    assert bench.weights() == [0, 0, 1000]


def test_the_only_endpoint_of_a_pool_never_drains() -> None:
    bench = Bench(chat=(A,))
    bench.unhealthy = {A.key}
    assert bench.tick().pools[0].unhealthy
    assert bench.weights() == [1000]


def test_a_pool_without_endpoints_is_not_unhealthy() -> None:
    assert not Bench(chat=()).tick().pools[0].unhealthy


def test_a_pool_without_a_healthy_endpoint_keeps_all_of_them(bench: Bench) -> None:
    """No endpoint at all answers nothing but 503; perhaps it is the way of the checks that is broken."""
    bench.tick()
    before = bench.weights()
    bench.unhealthy = {A.key, B.key, C.key}
    report = bench.tick()
    assert report.pools[0].unhealthy
    assert bench.weights() == before
    assert all("health_status" not in each for each in bench.placed())
    bench.unhealthy = {A.key, B.key}
    assert not bench.tick().pools[0].unhealthy
    assert [each.get("health_status") for each in bench.placed()] == ["DRAINING", "DRAINING", None]


def test_a_healthy_endpoint_with_a_share_of_zero_drains_too(bench: Bench) -> None:
    bench.memory = {A.key: 1.0, B.key: 0.5, C.key: 0.5}
    bench.tick(6)
    assert bench.weights() == [0, 500, 500]
    assert bench.placed()[0] | {"endpoint": None} == {
        "endpoint": None,
        "load_balancing_weight": 1,
        "health_status": "DRAINING",
    }


@pytest.mark.parametrize("at", range(4))
def test_a_zero_share_in_each_place_and_exact_sums(at: int) -> None:
    endpoints = [Endpoint(f"10.0.0.{number}", 8000) for number in range(4)]
    bench = Bench(chat=endpoints)
    bench.memory = {each.key: 1.0 if number == at else 0.3 for number, each in enumerate(endpoints)}
    bench.tick(6)
    weights = bench.weights()
    assert weights[at] == 0
    assert sum(weights) == 1000
    assert sorted(weights)[1:] == [333, 333, 334]


def test_all_scores_zero_is_saturated_and_equal(bench: Bench) -> None:
    bench.memory = {A.key: 1.0, B.key: 1.0, C.key: 1.0}
    report = bench.tick(4)
    assert report.pools[0].weights.saturated
    assert bench.weights() == [334, 333, 333]


def test_one_endpoint_gets_all(bench: Bench) -> None:
    bench.endpoints = {"chat": (A,)}
    bench.memory = {A.key: 0.9}
    bench.tick()
    assert bench.weights() == [1000]


def test_a_thousand_endpoints_have_exact_sums() -> None:
    endpoints = [Endpoint(f"10.0.{number // 250}.{number % 250 + 1}", 8000) for number in range(1000)]
    bench = Bench(chat=endpoints)
    bench.memory = {each.key: number / 1100 for number, each in enumerate(endpoints)}
    bench.tick(3)
    weights = bench.weights()
    assert sum(weights) == 100_000
    assert weights[0] > weights[500] > weights[-1] > 0


@pytest.mark.parametrize("odd", [nan, inf, -inf, -1.0])
def test_a_reading_that_is_no_fraction_is_no_reading(bench: Bench, odd: float) -> None:
    bench.memory = {A.key: odd, B.key: 0.5, C.key: 0.5}
    report = bench.tick(4)
    assert sum(bench.weights()) == 1000
    assert min(bench.weights()) > 300
    assert report.pools[0].weights.weights[0].reason is WeightReason.MEDIAN


# --- telemetry that fails


class Scripted(Bench):
    """Real readings: pages that a test changes, freezes and takes away, and requests that it lets finish."""

    def __init__(self) -> None:
        super().__init__()
        self.latency = Latency()
        self.latency.place({each.key: each.key for each in (A, B, C)}, {"chat": "chat"}, now=0.0)
        self.looks: dict[str, Look] = {}
        settings = self.reconciler.world.settings
        readings = Readings(
            settings.telemetry,
            look=lambda key: self.looks.get(key, Look()),
            healthy=lambda key: key.partition("/")[2] not in self.unhealthy,
            latency=self.latency,
        )
        self.reconciler = Reconciler(world_of(settings), inputs=readings, publish=self.publish)

    def scrape(self, endpoint: Endpoint, memory: float, *, frozen: bool = False) -> None:
        """One good look; `frozen`: at the same page as before."""
        key = f"chat/{endpoint.key}"
        before = self.looks.get(key, Look())
        same = before.page_changed_at if frozen else None
        at = self.now + TICK_S - 1
        self.looks[key] = Look(
            samples={"": EngineSample(at=at, memory=memory)}, taken_at=at, page_changed_at=same or at
        )

    def serve(self, count: int = 30, **seconds: float) -> None:
        """Requests that each endpoint finishes in the tick to come; its latency by a letter."""
        for letter, endpoint in (("a", A), ("b", B), ("c", C)):
            for part in range(5):
                self.latency.record(
                    [sample(upstream=endpoint.key, total_s=seconds.get(letter, 0.3))] * (count // 5),
                    now=self.now + part + 0.5,
                )


def test_one_of_three_scrapes_that_fails_changes_nothing() -> None:
    bench = Scripted()
    memory = {A: 0.2, B: 0.5, C: 0.7}
    for tick in range(60):
        bench.serve()
        for number, (endpoint, used) in enumerate(memory.items()):
            if (tick + number) % 3:
                bench.scrape(endpoint, used)
        bench.tick()
        if tick == 9:
            settled = len(bench.published)
    assert len(bench.published) == settled
    assert bench.weights()[0] > bench.weights()[1] > bench.weights()[2]


def test_an_exporter_that_freezes_while_idle_draws_no_herd_and_fades_to_neutral() -> None:
    bench = Scripted()
    shares: list[float] = []
    for tick in range(24):
        bench.serve()
        for endpoint in (B, C):
            bench.scrape(endpoint, 0.6)
        bench.scrape(A, 0.1, frozen=tick >= 8)
        report = bench.tick()
        shares.append(bench.weights()[0] / 1000)
    before = shares[7]
    assert before > 0.4, "it was idle, and got more"
    assert max(shares[8:]) <= before + 0.01, "no herd"
    assert shares[8 + 7 :] == pytest.approx([1 / 3] * 9, abs=0.01), "after 30 s it says nothing any more"
    assert all(a >= b - 0.001 for a, b in pairwise(shares[8:])), "fading, no jump back"
    frozen = report.pools[0].weights.weights[0]
    assert frozen.reason is WeightReason.STALE
    assert frozen.terms[0].age_s is not None and frozen.terms[0].age_s > 60


def test_an_idle_engine_whose_page_stands_still_is_believed() -> None:
    bench = Scripted()
    bench.scrape(A, 0.1)
    for _ in range(30):
        for endpoint in (A, B, C):
            bench.scrape(endpoint, 0.1 if endpoint is A else 0.6, frozen=True)
        report = bench.tick()
    assert report.pools[0].weights.weights[0].reason is WeightReason.MISSING  # of its latency alone
    assert bench.weights()[0] > 500


def test_all_telemetry_gone_keeps_the_last_good_weights() -> None:
    bench = Scripted()
    for _ in range(8):
        for endpoint, used in ((A, 0.2), (B, 0.5), (C, 0.7)):
            bench.scrape(endpoint, used)
        bench.tick()
    good, count = bench.weights(), len(bench.published)
    report = bench.tick(60)
    assert bench.weights() == good
    assert len(bench.published) == count
    assert {each.reason for each in report.pools[0].weights.weights} == {WeightReason.LAST_GOOD}
    for endpoint in (A, B, C):
        bench.scrape(endpoint, 0.5)
    bench.tick(4)
    assert max(bench.weights()) - min(bench.weights()) <= 30, "and follows again when it is back"


def test_an_endpoint_that_becomes_slow_loses_its_share_within_two_intervals() -> None:
    bench = Scripted()
    for tick in range(10):
        bench.serve(a=1.7 if tick >= 8 else 0.3)
        for endpoint in (A, B, C):
            bench.scrape(endpoint, 0.5)
        bench.tick()
        if tick == 7:
            assert bench.weights() == [334, 333, 333]
    assert bench.weights()[0] < 250


# --- endpoints that come and go


def test_an_endpoint_that_goes_and_comes_back_while_its_requests_run() -> None:
    bench = Scripted()
    everything, without = {"chat": (A, B, C)}, {"chat": (B, C)}
    for tick in range(40):
        bench.endpoints = without if tick % 4 == 2 else everything
        bench.latency.place(
            {each.key: each.key for each in bench.endpoints["chat"]}, {"chat": "chat"}, now=bench.now
        )
        bench.serve()  # A's requests end whether it is there or not
        for endpoint in bench.endpoints["chat"]:
            bench.scrape(endpoint, 0.5)
        report = bench.tick()
        assert sum(bench.weights()) == 1000
        assert len(bench.weights()) == len(bench.endpoints["chat"])
        assert all(each.weight >= 0 for each in report.pools[0].weights.weights)
        assert bench.latency.tail(A.key, now=bench.now).timed >= 0
        assert bench.latency.served_since(A.key, 0.0, now=bench.now) >= 0
    assert min(bench.weights()) > 250


def test_one_that_comes_back_starts_like_a_new_one(bench: Bench) -> None:
    bench.tick(2)
    bench.unhealthy = {A.key}
    bench.tick(2)
    bench.unhealthy = set()
    bench.tick()
    assert bench.weights() == [334, 333, 333]


def test_weights_survive_a_config_change_for_pools_that_stay() -> None:
    bench = Bench(config(CHAT, LONG), chat=(A, B), long=(C,))
    bench.memory = {A.key: 0.1, B.key: 0.8, C.key: 0.5}
    bench.tick(8)
    before = bench.weights()
    assert before[0] > 750
    bench.memory = {}  # whatever happens to telemetry in the moment of a reload
    bench.reconciler.world = world_of(config(CHAT, {**LONG, "name": "other"}))
    bench.tick(after_s=0.0)
    assert bench.weights() == before
    assert bench.names() == {"chat", "other"}


def test_a_pool_that_left_and_comes_again_starts_anew(bench: Bench) -> None:
    bench.memory = {A.key: 0.1, B.key: 0.9, C.key: 0.9}
    bench.tick(5)
    bench.reconciler.world = world_of(config(LONG))
    bench.tick()
    bench.memory = {}
    bench.reconciler.world = world_of(config(CHAT))
    bench.tick()
    assert bench.weights() == [334, 333, 333]


# --- ticks between the ticks


def test_early_ticks_move_no_share_further_than_the_interval_allows(bench: Bench) -> None:
    bench.memory = {A.key: 0.5, B.key: 0.5, C.key: 0.5}
    bench.tick(2)
    bench.memory = {A.key: 0.99, B.key: 0.01, C.key: 0.5}
    bench.tick(20, after_s=0.05)
    assert abs(bench.weights()[0] - 333) <= 250
    assert abs(bench.weights()[1] - 333) <= 250


def test_an_early_tick_drains_at_once(bench: Bench) -> None:
    bench.memory = {A.key: 0.5, B.key: 0.5, C.key: 0.5}
    bench.tick(2)
    bench.unhealthy = {A.key}
    bench.tick(after_s=0.05)
    assert bench.weights() == [0, 500, 500]


@pytest.mark.parametrize(
    ("since_s", "expected"), [(None, 0.25), (5.0, 0.25), (9.0, 0.25), (2.5, 0.125), (0.0, 0.0), (-3.0, 0.0)]
)
def test_the_step_of_a_tick_is_that_of_the_time_since_the_last(since_s: float | None, expected: float) -> None:
    assert scoring_rules(config(CHAT), since_s=since_s).max_step == expected


def test_rules_are_those_of_the_config() -> None:
    rules = scoring_rules(
        config(
            weights={"memory": 0.3, "latency": 0.7, "max_step": 0.5, "min_change": 0.05},
            telemetry={"interval_s": 2, "stale_after_intervals": 4, "neutral_after_intervals": 9, "timeout_s": 1},
        )
    )
    assert (rules.memory_weight, rules.latency_weight, rules.max_step, rules.min_change) == (0.3, 0.7, 0.5, 0.05)
    assert (rules.interval_s, rules.stale_after_intervals, rules.neutral_after_intervals) == (2, 4, 9)


# --- views


def viewed(*views: dict[str, Any]) -> Settings:
    return config(CHAT, LONG, TRITON, xds={"views": list(views)})


EDGE = {"node_id": "*", "node_cluster": "edge-*", "pools": ["chat"]}
BATCH = {"node_id": "batch-[0-9]", "node_cluster": "*", "pools": ["long", "triton"]}


@pytest.mark.parametrize(
    ("node_id", "node_cluster", "expected"),
    [
        ("any", "edge-1", 0),
        ("batch-1", "edge-1", 0),  # the first that fits
        ("batch-1", "inner", 1),
        ("batch-x", "inner", None),
        ("", "", None),
        ("BATCH-1", "inner", None),
    ],
)
def test_the_first_view_whose_patterns_fit(node_id: str, node_cluster: str, expected: int | None) -> None:
    assert view_of(views_of(viewed(EDGE, BATCH).xds.views), node_id, node_cluster) == expected


def test_without_views_every_envoy_sees_everything() -> None:
    assert view_of(views_of([]), "", "") == 0
    bench = Bench(viewed(), chat=(A,))
    bench.tick()
    assert bench.names() == {"chat", "long", "triton", "triton-grpc"}


def test_every_view_is_published_with_its_pools_and_both_clusters_of_a_triton() -> None:
    bench = Bench(viewed(EDGE, BATCH), chat=(A,), long=(B,), triton=(C,))
    assert bench.tick().problems == ()
    assert [bench.names(view) for view in (0, 1)] == [{"chat"}, {"long", "triton", "triton-grpc"}]
    assert {built.generation for built in bench.published[-1]} == {1}


def test_a_pool_that_ends_like_a_triton_cluster_is_a_pool_of_its_own() -> None:
    settings = config(CHAT, {**LONG, "name": "chat-grpc"}, xds={"views": [EDGE]})
    bench = Bench(settings, chat=(A,))
    bench.tick()
    assert bench.names() == {"chat"}


# --- values


def report_of(*weights: tuple[int, bool]) -> PoolReport:
    found = tuple(
        EndpointWeight(
            key=each.key,
            weight=weight,
            draining=draining,
            score=0.0,
            terms=(),
            reason=WeightReason.EVEN,
            moved_by=None,
        )
        for each, (weight, draining) in zip((A, B, C), weights, strict=False)
    )
    pool = PoolWeights(weights=found, total=1000, saturated=False, changed=False)
    return PoolReport("chat", "vllm", "stable", (A, B, C)[: len(found)], pool)


def test_standings_never_have_a_weight_below_one() -> None:
    found = standing(report_of((0, True), (700, False), (0, False)))
    assert [(each.weight, each.draining) for each in found] == [(1, True), (700, False), (1, False)]


def test_a_pool_nobody_measured(bench: Bench) -> None:
    assert not bench.tick().pools[0].measured
    bench.memory = {B.key: 0.5}
    assert bench.tick().pools[0].measured


# --- anything at any time


class Days(RuleBasedStateMachine):
    """Whatever comes, what is published is what Envoy takes, sums are exact, and generations grow."""

    @initialize()
    def begin(self) -> None:
        self.bench = Bench(config(CHAT, LONG), chat=(A, B, C), long=(A,))

    @rule(
        key=st.sampled_from([A.key, B.key, C.key]),
        memory=st.none() | st.floats() | st.floats(0, 1),
        p99_s=st.none() | st.floats(0, 5),
    )
    def measure(self, key: str, memory: float | None, p99_s: float | None) -> None:
        self.bench.memory[key] = memory
        self.bench.p99_s.pop(key, None)
        if p99_s is not None:
            self.bench.p99_s[key] = p99_s

    @rule(unhealthy=st.sets(st.sampled_from([A.key, B.key, C.key])))
    def check(self, unhealthy: set[str]) -> None:
        self.bench.unhealthy = unhealthy

    @rule(found=st.sets(st.sampled_from([A, B, C])))
    def move(self, found: set[Endpoint]) -> None:
        self.bench.endpoints["chat"] = tuple(sorted(found, key=lambda each: each.key))

    @rule(names=st.sampled_from([(CHAT, LONG), (CHAT,), (LONG, CHAT), ()]))
    def reload(self, names: tuple[dict[str, Any], ...]) -> None:
        self.bench.reconciler.world = world_of(config(*names))

    @rule(after_s=st.sampled_from([0.0, 0.05, 5.0, 300.0, -2.0]))
    def tick(self, after_s: float) -> None:
        before = self.bench.reconciler.world.settings.pools
        report = self.bench.tick(after_s=after_s)
        assert report.problems == ()
        assert [pool.name for pool in report.pools] == [pool.name for pool in before]

    @invariant()
    def envoy_has_what_it_may_have(self) -> None:
        if not self.bench.published:
            return
        generations = [built[0].generation for built in self.bench.published]
        assert generations == sorted(set(generations))
        for name in self.bench.names():
            placed = self.bench.placed(name)
            assert all(each["load_balancing_weight"] >= 1 for each in placed)
            weights = self.bench.weights(name)
            assert sum(weights) == (1000 if placed else 0), "whoever is there, somebody is to be asked"


TestDays = Days.TestCase
TestDays.settings = hypothesis_settings(max_examples=30, stateful_step_count=25, deadline=None)


@given(st.lists(st.floats(0.05, 0.95), min_size=3, max_size=3), st.integers(0, 2))
@hypothesis_settings(max_examples=30, deadline=None)
def test_more_memory_in_use_never_earns_a_larger_share(memory: list[float], at: int) -> None:
    def settled(used: list[float]) -> list[int]:
        bench = Bench()
        bench.memory = dict(zip((A.key, B.key, C.key), used, strict=True))
        bench.tick(8)
        return bench.weights()

    more: Callable[[int, float], float] = lambda number, used: min(0.99, used + 0.03) if number == at else used  # noqa: E731
    assert settled([more(number, used) for number, used in enumerate(memory)])[at] <= settled(memory)[at] + 10

"""Samples in, states and incidents out, for all breakers of a deployment."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from extproc.loops import breakers as loop
from extproc.loops.breakers import Breakers, Kept, decode, encode
from extproc.model.protection import Incident
from extproc.model.telemetry import AccessSample
from extproc.protect.breaker import Breaker, State
from extproc.settings import load
from tests.windows.samples import sample

CONFIG = """
pools:
  - {name: big, engine: vllm, endpoints: ["http://a:1"]}
  - {name: small, engine: vllm, endpoints: ["http://b:1"]}
  - {name: light, engine: llamacpp, endpoints: ["http://c:1"], role: light}
protection: {breakers: {pool: {open_s: 10, jitter_share: 0}, fallback: {open_s: 10}, parameters: {open_s: 10}}}
"""
SET = "default@1"


class World:
    def __init__(self, kept: Kept | None = None) -> None:
        settings = load(CONFIG)
        self.breakers = Breakers(kept or Kept(), pool_of=lambda cluster: cluster.removesuffix("-grpc"))
        self.breakers.configure(settings.protection, settings.pool_specs())
        self.now = 1000.0
        self.incidents: list[Incident] = []

    def record(self, count: int, one: AccessSample) -> None:
        self.breakers.record([one] * count, dynamic_set=SET, now=self.now)

    def step(self, seconds: float = 0.0) -> None:
        self.now += seconds
        found = self.breakers.step(now=self.now, wall=self.now, jitter=lambda: 0.0)
        self.incidents += found

    def open_names(self) -> set[str]:
        return {name for name, each in self.breakers.states.items() if each.state is not State.CLOSED}


def of(cluster: str, **changes: Any) -> AccessSample:
    return sample(cluster=cluster, params=SET, **changes)


BROKEN = of("big", status=503)
SLOW = of("big", total_s=1.2)


def test_names() -> None:
    assert list(World().breakers.names()) == [
        "parameters",
        "pool/big",
        "fallback/big",
        "pool/small",
        "fallback/small",
        "pool/light",
    ]


def test_a_dead_pool_opens_its_own_breaker_and_no_other() -> None:
    world = World()
    world.record(30, BROKEN)
    world.record(500, of("small"))
    world.step()
    assert world.open_names() == {"pool/big"}
    (incident,) = world.incidents
    assert (incident.subject, incident.state, incident.active) == ("pool/big", "open", True)
    assert incident.evidence["errors"] == 30 and incident.reason == "error_rate 1.00"


def test_the_breaker_of_parameters_judges_no_set_by_the_one_before() -> None:
    world = World()
    world.record(17, SLOW)
    world.record(2, BROKEN)
    world.now += 1
    ok, bad = replace(SLOW, params="default@2"), replace(BROKEN, params="default@2")
    world.breakers.record([ok], dynamic_set="default@2", now=world.now)
    world.step()
    assert world.breakers.state("parameters") is State.CLOSED, "one request of it says nothing"
    world.step(10)
    world.breakers.record([ok] * 18 + [bad] * 2, dynamic_set="default@2", now=world.now)
    world.step()
    assert world.breakers.state("parameters") is State.OPEN


def test_slow_and_failing_opens_parameters_and_the_way_to_the_light_model() -> None:
    world = World()
    world.record(90, SLOW)
    world.record(10, BROKEN)
    world.record(5000, of("small"))
    world.step()
    assert world.open_names() == {"parameters", "fallback/big"}, "a good pool hides no bad one"


@pytest.mark.parametrize("status", [400, 429])
def test_what_clients_get_wrong_counts_for_nothing(status: int) -> None:
    world = World()
    world.record(50, of("big", status=status))
    world.record(19, BROKEN)
    world.step()
    assert world.open_names() == set(), "19 errors are too few, whatever else came"
    world.record(1, BROKEN)
    world.step()
    assert world.open_names() == {"pool/big"}, "and bad requests do not hide them"


def test_overflow_and_clients_that_left_count_for_nothing() -> None:
    world = World()
    world.record(100, of("big", status=503, flags=("UO",)))
    world.record(100, of("big", flags=("DC",)))
    world.step()
    assert world.open_names() == set()


def test_requests_by_the_safe_set_say_nothing_of_the_dynamic_one() -> None:
    world = World()
    slow, broken = (
        sample(cluster="big", total_s=1.2, params="safe@1"),
        sample(cluster="big", status=503, params="safe@1"),
    )
    world.record(90, slow)
    world.record(10, broken)
    world.step()
    assert world.open_names() == {"fallback/big"}


def test_grpc_requests_are_of_the_same_pool() -> None:
    world = World()
    world.record(30, of("big-grpc", status=503))
    world.step()
    assert "pool/big" in world.open_names()


def test_only_probes_close_it_and_what_was_before_does_not_open_it_again() -> None:
    world = World()
    world.record(30, BROKEN)
    world.step()
    world.record(50, of("big"))
    world.step(11)
    assert world.breakers.state("pool/big") is State.HALF_OPEN
    world.record(50, of("big"))
    world.step(1)
    assert world.breakers.state("pool/big") is State.HALF_OPEN, "critical requests are no probes"
    world.record(10, of("big", probe=True))
    world.step(1)
    assert world.breakers.state("pool/big") is State.CLOSED
    world.step(1)
    assert world.open_names() == set()
    assert [each.state for each in world.incidents] == ["open", "half_open", "closed"]


def test_a_slow_probe_is_a_bad_one_where_latency_is_judged() -> None:
    world = World()
    world.record(90, SLOW)
    world.record(10, BROKEN)
    world.step()
    world.step(11)
    world.record(2, of("big", probe=True, total_s=0.9))
    world.step(1)
    assert world.breakers.state("fallback/big") is State.OPEN


def test_a_light_pool_is_tried_by_whatever_comes() -> None:
    world = World()
    world.record(30, of("light", status=503))
    world.step()
    world.step(11)
    world.record(10, of("light"))
    world.step(1)
    assert world.breakers.state("pool/light") is State.CLOSED


def test_states_outlive_a_restart_and_broken_files_do_not() -> None:
    world = World()
    world.record(30, BROKEN)
    world.step()
    kept = decode(encode(world.breakers.kept()))
    again = World(kept)
    assert again.open_names() == {"pool/big"}
    assert decode(None) == Kept() == decode(b"{") == decode(b'{"breakers": 3}')


def test_pools_come_and_go() -> None:
    world = World(Kept({"pool/gone": Breaker(state=State.OPEN, until=1e12)}))
    assert "pool/gone" not in world.breakers.states
    settings = load('pools: [{name: big, engine: vllm, endpoints: ["http://a:1"]}]')
    world.record(30, BROKEN)
    world.breakers.configure(settings.protection, settings.pool_specs())
    world.step()
    assert set(world.breakers.states) == {"parameters", "pool/big", "fallback/big"}
    assert world.open_names() == {"pool/big"}, "what was seen of the one that stays is kept"


def test_the_least_bad() -> None:
    assert loop.badness(loop.Seen(10, 1, 9.0)) < loop.badness(loop.Seen(10, 2, 0.1))
    assert loop.badness(loop.Seen(10, 1, 0.1)) < loop.badness(loop.Seen(10, 1, 0.2))

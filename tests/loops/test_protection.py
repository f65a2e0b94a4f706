"""The protection loop: what it publishes, what it limits, when it panics, degrades and rolls back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from extproc.edge.state_file import StateFile
from extproc.loops.latency import Latency
from extproc.loops.parameter_history import RETRY_S, ParameterHistory
from extproc.model.protection import CALM, Incident, Protection
from extproc.model.telemetry import AccessSample
from extproc.model.topology import Endpoint
from extproc.protect.breaker import State
from extproc.protect.history import Standing
from extproc.settings import Settings, load, safe_set
from tests.protect.protectors import quiet_protector
from tests.windows.samples import sample

POOLS = """
pools:
  - {name: big, engine: vllm, endpoints: ["http://10.0.0.1:80", "http://10.0.0.2:80"]}
  - {name: small, engine: vllm, endpoints: ["http://10.0.0.3:80"]}
  - {name: light, engine: llamacpp, endpoints: ["http://10.0.0.4:80"], role: light}
"""
TIMES = """
protection:
  rollback: {breach_s: 5, window_s: 20}
"""
SAFE = safe_set(load("").parameters(), load("").protection.safe_set).label()


class World:
    def __init__(
        self, folder: Path, text: str = POOLS + TIMES, files: Mapping[str, StateFile] | None = None
    ) -> None:
        self.settings = load(text)
        save = {name: each.save for name, each in (files or {}).items()}
        self.now = 1000.0
        self.latency = Latency(window_s=60)
        self.loads: dict[str, float | None] = {}
        self.published: list[Protection] = []
        self.incidents: list[Incident] = []
        self.reconsidered = 0
        self.history = ParameterHistory(
            None, save=save.get("parameters.json", lambda _: True), wall=lambda: self.now
        )
        self.history.effective(self.settings)
        self.protector = quiet_protector(
            lambda cluster: cluster,
            lambda spec, _, __: [self.loads.get(spec.name)],
            folder,
            parameters=self.history,
            publish=self.published.append,
            report=self.incidents.append,
            reconsider=self._reconsider,
            save=save.get("breakers.json", lambda _: True),
        )
        self.protector.configure(self.settings)
        self.endpoints = {pool.name: pool.listed() for pool in self.settings.pools}
        self.latency.place(
            {each.key: each.key for pool in self.endpoints.values() for each in pool},
            {name: name for name in self.endpoints},
            now=self.now,
        )

    def _reconsider(self) -> None:
        self.reconsidered += 1

    def record(self, count: int, one: AccessSample) -> None:
        self.latency.record([one] * count, now=self.now)
        self.protector.record([one] * count, now=self.now)

    def tick(self, seconds: float = 1.0) -> bool:
        self.now += seconds
        return self.protector.tick(self.endpoints, self.latency, now=self.now, wall=self.now, jitter=lambda: 0.0)

    def of(self, pool: str, endpoint: int = 0, **changes: Any) -> AccessSample:
        found: Endpoint = self.endpoints[pool][endpoint]
        return sample(cluster=pool, upstream=found.key, **{"params": self.history.label, **changes})

    @property
    def limits(self) -> Mapping[str, int]:
        return self.protector.status.limits


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    yield World(tmp_path)


def test_a_quiet_day_publishes_nothing(world: World) -> None:
    world.record(100, world.of("big"))
    for _ in range(5):
        world.tick()
    assert world.protector.status.protection.calm and world.incidents == []
    assert world.published == [Protection(light=("light",))], "once: which pools take fallback traffic"


def test_a_dead_pool_is_shut_tried_out_and_opened(world: World) -> None:
    world.tick()
    world.record(30, world.of("big", status=503))
    assert world.tick(), "Envoy is to be told"
    access = world.published[-1].pools["big"]
    assert (access.probe_share, access.reason, access.exempt) == (0.0, "pool_breaker", ("critical",))
    assert world.limits == {"big": 0} and world.published[-1].retry_after_s == 10
    world.tick(10)
    assert world.limits == {"big": 4} and world.published[-1].pools["big"].probe_share == 0.05
    world.record(10, world.of("big", probe=True))
    world.tick()
    assert world.limits == {} and world.published[-1].calm


def test_an_open_breaker_is_no_new_snapshot_each_second(world: World) -> None:
    world.record(30, world.of("big", status=503))
    world.tick()
    published = len(world.published)
    for _ in range(8):
        assert not world.tick(), "nothing is new to Envoy"
    assert len(world.published) == published


def test_a_bad_pool_is_relieved_and_its_parameters_are_safe(world: World) -> None:
    world.record(90, world.of("big", total_s=1.0))
    world.record(10, world.of("big", status=503))
    world.tick()
    protection = world.published[-1]
    assert protection.pools["big"].serves_anyway and protection.parameters is not None
    assert protection.light == ("light",) and world.limits == {}, "Envoy still lets requests in"
    other = load("inference_params: {temperature: {normal: 0.5}}")
    assert world.history.effective(other).parameters() != other.parameters(), "no new set while it is so"
    world.tick(11)
    world.record(10, world.of("big", probe=True))
    world.tick()
    assert world.published[-1].calm and world.reconsidered == 1
    assert world.history.effective(other).parameters() == other.parameters()


def test_the_least_bad_serves_when_all_are_open(world: World) -> None:
    for pool, ok in (("big", 0), ("small", 9), ("light", 0)):
        world.record(30, world.of(pool, status=503))
        world.record(ok, world.of(pool))
    world.tick()
    assert world.protector.status.panic == "small"
    assert "small" not in world.limits and "small" not in world.published[-1].pools
    assert world.limits["big"] == 0
    world.tick(10)
    assert world.protector.status.panic == "", "they are half open: somebody tries them out"
    assert [(each.kind, each.active) for each in world.incidents if each.kind == "panic"] == [
        ("panic", True),
        ("panic", False),
    ]


def shut_all(world: World, **ok: int) -> None:
    for pool in ("big", "small", "light"):
        world.record(30, world.of(pool, status=503))
        world.record(ok.get(pool, 0), world.of(pool))
    world.tick()


def test_a_light_pool_that_is_the_least_bad_serves(world: World) -> None:
    shut_all(world, light=9)
    assert world.protector.status.panic == "light"
    assert world.published[-1].light == ("light",), "fallback traffic goes there although it is open"
    assert world.limits == {"big": 0, "small": 0}


def test_among_equals_a_light_pool_is_the_last_to_serve(tmp_path: Path) -> None:
    lines = POOLS.splitlines()
    world = World(tmp_path, "\n".join([lines[0], lines[1], lines[4], *lines[2:4]]) + TIMES)
    assert next(iter(world.endpoints)) == "light"
    shut_all(world)
    assert world.protector.status.panic == "big", "it takes whole prompts, of any API, and more than a few"


ALONE = 'pools: [{name: big, engine: vllm, endpoints: ["http://10.0.0.1:80"]}]\n' + TIMES


def test_the_only_pool_serves_also_while_it_is_tried_out(tmp_path: Path) -> None:
    world = World(tmp_path, ALONE)
    world.record(30, world.of("big", status=503))
    world.tick()
    assert world.protector.status.panic == "big"
    world.tick(10)
    access = world.published[-1].pools["big"]
    assert world.protector.breakers.state("pool/big") is State.HALF_OPEN
    assert (access.probe_share, access.alone) == (0.05, True), "some are probes, the rest goes there as well"
    assert world.protector.status.panic == "big" and world.limits == {}
    world.record(10, world.of("big", probe=True))
    world.tick()
    assert world.published[-1].calm and world.protector.status.panic == ""


def test_without_panic_the_only_pool_is_spared_while_it_is_tried_out(tmp_path: Path) -> None:
    world = World(tmp_path, ALONE + "  breakers: {panic: false}\n")
    world.record(30, world.of("big", status=503))
    world.tick()
    assert world.limits == {"big": 0}
    world.tick(10)
    assert world.limits == {"big": 4} and not world.published[-1].pools["big"].alone


def test_a_light_pool_that_opens_later_leaves_nobody_without_an_answer(world: World) -> None:
    for pool in ("big", "small"):
        world.record(30, world.of(pool, status=503))
    world.tick()
    assert world.protector.status.panic == "", "the light pool serves"
    world.tick(10)
    world.record(30, world.of("light", status=503))
    world.tick()
    assert world.published[-1].light == () and world.protector.status.panic == "big"
    assert world.published[-1].pools["big"].alone and not world.published[-1].pools["small"].alone


def test_a_panic_goes_to_another_pool_when_its_own_is_removed(world: World) -> None:
    shut_all(world, small=9)
    assert world.protector.status.panic == "small"
    left = POOLS.replace("  - {name: small", "  # - {name: small")
    world.protector.configure(load(left + TIMES))
    del world.endpoints["small"]
    world.tick()
    assert world.protector.status.panic == "big" and world.limits == {"light": 0}
    told = [(each.subject, each.active) for each in world.incidents if each.kind == "panic"]
    assert told == [("pool/small", True), ("pool/small", False), ("pool/big", True)]


def test_a_light_pool_that_is_open_takes_nothing(world: World) -> None:
    world.tick()
    world.record(30, world.of("light", status=503))
    world.tick()
    assert world.published[-1].light == ()


def test_load_degrades_with_hysteresis(world: World) -> None:
    for load_of_big, degraded in ((0.79, ()), (0.85, ("big",)), (0.75, ("big",)), (0.69, ()), (None, ())):
        world.loads["big"] = load_of_big
        world.tick()
        assert world.protector.status.protection.degraded == degraded
    assert [each.state for each in world.incidents] == ["degraded", "normal"]


def unproven_second_set(world: World) -> str:
    """What it is to be rolled back to."""
    world.history.prove("did well")
    good = world.history.label
    world.history.effective(load(POOLS + TIMES + "\ninference_params: {temperature: {normal: 0.5}}"))
    assert world.history.label != good
    return good


def test_a_long_breach_on_enough_endpoints_rolls_back_once(world: World) -> None:
    good = unproven_second_set(world)
    for _ in range(6):
        world.record(30, world.of("big", total_s=2.5))
        world.tick()
    assert world.history.label != good, "not long enough"
    world.record(30, world.of("big", total_s=2.5))
    world.tick()
    assert world.history.label == good and world.reconsidered == 1
    (incident,) = [each for each in world.incidents if each.kind == "parameters"]
    assert incident.reason == "slo_breached" and incident.evidence["worst_p99_s"] > 1.8  # type: ignore[operator]
    assert incident.evidence["affected_share"] == 0.333
    for _ in range(20):
        world.record(30, world.of("big", total_s=2.5))
        world.tick()
    assert len([each for each in world.incidents if each.kind == "parameters"]) == 1


SLOW = {"total_s": 2.5}


def other_set(normal: float) -> Settings:
    return load(POOLS + TIMES + f"\ninference_params: {{temperature: {{normal: {normal}}}}}")


def run(world: World, seconds: int, **changes: Any) -> None:
    for _ in range(seconds):
        world.record(30, world.of("big", **changes))
        world.tick()


def test_a_set_that_ends_a_breach_is_not_taken_back_for_it(world: World) -> None:
    unproven_second_set(world)
    run(world, 5, **SLOW)
    world.history.effective(other_set(0.6))
    fix = world.history.label
    run(world, 30)
    assert world.history.label == fix and world.incidents == []


def test_a_set_that_does_no_better_has_the_whole_time_too(world: World) -> None:
    good = unproven_second_set(world)
    run(world, 5, **SLOW)
    world.history.effective(other_set(0.6))
    run(world, 6, **SLOW)
    assert world.history.label != good
    run(world, 2, **SLOW)
    assert world.history.label == good


def test_requests_of_the_set_before_are_not_held_against_the_new_one(world: World) -> None:
    """They were under way when it came, or workers heard of it late."""
    good = unproven_second_set(world)
    old = world.history.label
    run(world, 5, **SLOW)
    world.history.effective(other_set(0.6))
    for _ in range(20):
        world.record(30, world.of("big"))
        world.record(30, replace(world.of("big", **SLOW), params=old))
        world.tick()
    assert world.protector.status.slo.broken, "that is still told"
    assert world.history.label not in {old, good} and world.protector.status.slo.breached_s == 0


def test_a_set_that_comes_back_by_hand_begins_anew(world: World) -> None:
    unproven_second_set(world)
    run(world, 8, **SLOW)
    refused = next(each for each in world.history.history.versions if each.standing is Standing.REFUSED)
    world.tick()
    world.history.activate(refused.version, by="ops")
    run(world, 30)
    assert world.history.label == refused.label, "it was the network"


def test_a_breach_goes_on_under_the_safe_set_that_it_brought(world: World) -> None:
    good = unproven_second_set(world)
    run(world, 2, **SLOW)
    run(world, 7, **SLOW, params=SAFE)
    assert world.history.label == good


def test_a_set_that_comes_while_the_safe_one_serves_is_not_judged_by_it(world: World) -> None:
    unproven_second_set(world)
    run(world, 2, **SLOW)
    world.history.effective(other_set(0.6))
    fix = world.history.label
    run(world, 20, **SLOW, params=SAFE)
    assert world.history.label == fix


def test_a_breach_on_few_endpoints_does_not(tmp_path: Path) -> None:
    many = ", ".join(f'"http://10.1.0.{number}:80"' for number in range(1, 5))
    world = World(tmp_path, f"pools: [{{name: big, engine: vllm, endpoints: [{many}]}}]\n{TIMES}")
    good = unproven_second_set(world)
    for _ in range(30):
        world.record(30, world.of("big", 0, total_s=2.5))
        world.tick()
    assert world.history.label != good and world.protector.status.slo.affected_share == 0.25


def test_a_set_that_does_well_long_enough_proves_itself(tmp_path: Path) -> None:
    world = World(tmp_path, POOLS + "drift: {freeze: {after_s: 10, samples: 50}}")
    for _ in range(12):
        world.record(30, world.of("big"))
        world.tick()
    assert world.history.last_good_label == world.history.label
    assert world.protector.drift.baselines.of(world.history.label) is not None


def test_a_breach_starts_that_anew(tmp_path: Path) -> None:
    world = World(tmp_path, POOLS + "drift: {freeze: {after_s: 10, samples: 50}}")
    for number in range(12):
        world.record(30, world.of("big", total_s=2.5 if number == 6 else 0.1))
        world.tick()
    assert world.history.last_good_label == ""


def test_switched_off_it_watches_and_does_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, POOLS + "protection: {enabled: false}")
    world.record(90, world.of("big", total_s=3.0))
    world.record(60, world.of("big", status=503))
    world.loads["big"] = 0.99
    world.tick()
    assert world.published[-1].calm and world.limits == {}
    assert world.incidents, "what would have tripped is still told"


def test_usage_calibrates_what_a_cut_goes_by(world: World) -> None:
    from extproc.model.telemetry import UsageSample

    usual = {"scenario": "", "tier": "", "tenant": "", "pool": "", "finish_reason": "stop", "estimated": False}
    world.protector.usage(
        UsageSample(model="m", prompt_tokens=1000, output_tokens=1, request_bytes=4000, **usual)  # type: ignore[arg-type]
    )
    world.record(30, world.of("big", status=503))
    world.tick()
    assert world.published[-1].bytes_per_token == {"m": 4.0}


def test_what_the_disk_did_not_take_is_written_when_it_does(tmp_path: Path) -> None:
    files = {name: StateFile(tmp_path / name) for name in ("parameters.json", "breakers.json")}
    world = World(tmp_path, files=files)
    in_the_way = [tmp_path / f"{name}.new" for name in files]
    for each in in_the_way:
        each.mkdir()
    world.history.effective(other_set(0.6))
    world.record(30, world.of("big", status=503))
    world.tick()
    for each in in_the_way:
        each.rmdir()
    world.tick(RETRY_S)
    assert world.history.label.partition("@")[2].encode() in (files["parameters.json"].load() or b"")
    assert b"pool/big" in (files["breakers.json"].load() or b"")


def test_the_start_is_calm() -> None:
    assert CALM.calm

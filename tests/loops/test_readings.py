"""What scoring is told: whom it believes, how old it is, and that what is not known is None."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from extproc.engines.joining import Join
from extproc.loops.latency import Latency
from extproc.loops.readings import LOG_DELAY_S, MIN_REQUESTS, Readings, arranged
from extproc.loops.telemetry import Look
from extproc.model.telemetry import EngineSample
from extproc.model.topology import Endpoint
from extproc.scoring.values import EndpointInput, Reading
from extproc.settings import Settings, load
from extproc.windows.sketch import RELATIVE_ERROR
from tests.windows.samples import sample

NOW = 1000.0
A = Endpoint("10.0.0.1", 8000, 8001, hostname="node-a")
B = Endpoint("10.0.0.2", 8000)

DCGM = {"url": "http://10.0.0.9:9400/metrics", "label": "Hostname"}
DCGM_KEY = "dcgm/http://10.0.0.9:9400/metrics"
QUERIES = {"url": "http://prom:9090", "label": "instance", "queries": {"memory": "m", "p99_s": "p"}}


def telling(taken_at: float = NOW - 1, changed_at: float | None = None, **terms: Any) -> Look:
    """A look at an engine's own page; `changed_at`: when its page last changed, None = at this look."""
    page_at = taken_at if changed_at is None else changed_at
    return Look(
        samples={"": EngineSample(at=taken_at, **terms)},
        taken_at=taken_at,
        changed_at=page_at,
        page_changed_at=page_at,
    )


def sharing(
    samples: Mapping[str, dict[str, float]], taken_at: float = NOW - 2, changed_at: float | None = None
) -> Look:
    """A look at a source that tells of many, by label."""
    page_at = taken_at if changed_at is None else changed_at
    told = {label: EngineSample(at=taken_at, **terms) for label, terms in samples.items()}
    return Look(samples=told, taken_at=taken_at, changed_at=page_at, page_changed_at=page_at)


class World:
    def __init__(self, **telemetry: Any) -> None:
        text = yaml.safe_dump(
            {
                "pools": [{"name": "chat", "engine": "vllm", "endpoints_file": "f", "max_acceptable_p99_ms": 900}],
                "telemetry": telemetry,
            }
        )
        self.settings: Settings = load(text)
        (self.spec,) = self.settings.pool_specs()
        self.looks: dict[str, Look] = {}
        self.asked: list[str] = []
        self.unhealthy: set[str] = set()
        self.latency = Latency()
        self.latency.place({A.key: A.key, B.key: B.key}, {"chat": "chat"}, now=0.0)
        self.readings = Readings(
            self.settings.telemetry,
            look=self.look,
            healthy=lambda key: key not in self.unhealthy,
            latency=self.latency,
        )

    def look(self, key: str) -> Look:
        self.asked.append(key)
        return self.looks.get(key, Look())

    def serve(self, *seconds: float, count: int = 1, endpoint: Endpoint = A, **changes: Any) -> None:
        """Requests that are told of at these times."""
        for at in seconds:
            self.latency.record([sample(upstream=endpoint.key, **changes)] * count, now=at)

    def read(self, endpoint: Endpoint = A, now: float = NOW) -> EndpointInput:
        (found,) = self.readings(self.spec, (endpoint,), now=now)
        return found


# --- nothing known


def test_nothing_known_is_none_and_never_zero() -> None:
    assert World(dcgm=[DCGM], prometheus=QUERIES).read() == EndpointInput(
        key=A.key, healthy=True, memory=None, p99_s=None, max_acceptable_p99_s=0.9
    )


def test_a_page_that_tells_neither_term_is_not_zero() -> None:
    world = World()
    world.looks[f"chat/{A.key}"] = telling(running=3.0, kv_usage=0.5)
    found = world.read()
    assert (found.memory, found.p99_s) == (None, None)


def test_zero_is_a_value() -> None:
    world = World()
    world.looks[f"chat/{A.key}"] = telling(memory=0.0)
    assert world.read().memory == Reading(0.0, NOW - 1)


def test_unhealthy_is_told_of_the_endpoint_of_this_pool() -> None:
    world = World()
    world.unhealthy = {f"chat/{A.key}", f"other/{B.key}"}
    both = world.readings(world.spec, (A, B), now=NOW)
    assert [each.healthy for each in both] == [False, True]
    assert [each.key for each in both] == [A.key, B.key]


# --- whom it believes


OWN = telling(NOW - 3, memory=0.1)
OF_HOST = sharing({"node-a": {"memory": 0.2}, "node-b": {"memory": 0.9}}, NOW - 2)
OF_QUERY = sharing({"10.0.0.1:8000": {"memory": 0.3}}, NOW - 1)
ORCA = {"kv_cache_usage_perc": 0.4}


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ("own dcgm prometheus orca", Reading(0.1, NOW - 3)),
        ("dcgm prometheus orca", Reading(0.2, NOW - 2)),
        ("prometheus orca", Reading(0.3, NOW - 1)),
        ("orca", Reading(0.4, NOW - 5)),
        ("", None),
    ],
)
def test_own_page_first_then_shared_sources_then_what_came_with_answers(
    sources: str, expected: Reading | None
) -> None:
    world = World(dcgm=[DCGM], prometheus=QUERIES)
    if "own" in sources:
        world.looks[f"chat/{A.key}"] = OWN
    if "dcgm" in sources:
        world.looks[DCGM_KEY] = OF_HOST
    if "prometheus" in sources:
        world.looks["prometheus/memory"] = OF_QUERY
    if "orca" in sources:
        world.serve(NOW - 5, orca=ORCA)
    assert world.read().memory == expected


def test_a_term_that_the_own_page_lacks_comes_from_the_next() -> None:
    world = World(prometheus=QUERIES)
    world.looks[f"chat/{A.key}"] = telling(memory=0.1)
    world.looks["prometheus/p99_s"] = sharing({A.key: {"p99_s": 0.7}})
    found = world.read()
    assert (found.memory, found.p99_s) == (Reading(0.1, NOW - 1), Reading(0.7, NOW - 2))


def test_a_host_is_joined_by_its_address_too_and_every_gpu_counts() -> None:
    world = World(dcgm=[DCGM])
    world.looks[DCGM_KEY] = sharing({"10.0.0.2": {"memory": 0.5}, "10.0.0.2:9400": {"memory": 0.8}})
    assert world.read(B).memory == Reading(0.8, NOW - 2)
    assert world.read(A).memory is None


def test_the_order_of_the_config_holds_whatever_the_join() -> None:
    by_endpoint = {"url": "http://10.0.0.8:9400/metrics", "label": "instance"}
    looks = {
        "dcgm/http://10.0.0.8:9400/metrics": sharing({A.key: {"memory": 0.6}}),
        DCGM_KEY: sharing({"node-a": {"memory": 0.5}}),
    }
    for dcgm, expected in (([DCGM, by_endpoint], 0.5), ([by_endpoint, DCGM], 0.6)):
        world = World(dcgm=dcgm)
        world.looks = looks
        memory = world.read().memory
        assert memory is not None
        assert memory.value == expected


def test_terms_are_all_that_is_fresh_by_trust() -> None:
    world = World(dcgm=[DCGM], neutral_after_intervals=6, interval_s=5)
    assert world.readings.terms("chat", A, now=NOW) == {}
    world.looks[f"chat/{A.key}"] = telling(memory=0.1, fragmentation=0.25, waiting=0.0)
    world.looks[DCGM_KEY] = sharing({"10.0.0.1": {"memory": 0.8, "sm_utilisation": 0.6}})
    assert world.readings.terms("chat", A, now=NOW) == {
        "memory": 0.1,
        "fragmentation": 0.25,
        "waiting": 0.0,
        "sm_utilisation": 0.6,
    }
    assert world.readings.terms("chat", A, now=NOW + 100) == {}, "too old"


def test_tritons_statistics_are_of_the_endpoint_itself() -> None:
    world = World(triton_statistics=True)
    world.looks[f"chat/{A.key}/statistics"] = telling(p99_s=0.4)
    assert world.read().p99_s == Reading(0.4, NOW - 1)
    assert World().read().p99_s is None


@pytest.mark.parametrize("name", ["kv_cache_usage_perc", "named_metrics.kv_cache_usage_perc"])
def test_a_load_report_of_kv_usage(name: str) -> None:
    world = World()
    world.serve(NOW - 5, orca={name: 0.25, "cpu_utilization": 0.9})
    assert world.read().memory == Reading(0.25, NOW - 5)


def test_a_load_report_without_kv_usage_says_nothing() -> None:
    world = World()
    world.serve(NOW - 5, orca={"cpu_utilization": 0.9})
    assert world.read().memory is None


# --- how old it is


def test_a_frozen_page_is_as_old_as_its_last_change() -> None:
    world = World()
    world.looks[f"chat/{A.key}"] = telling(NOW - 1, NOW - 40, memory=0.1)
    world.serve(NOW - 30)
    assert world.read().memory == Reading(0.1, NOW - 40)


def test_an_idle_engines_page_is_as_young_as_the_look_at_it() -> None:
    world = World()
    world.looks[f"chat/{A.key}"] = telling(NOW - 1, NOW - 400, memory=0.1)
    world.serve(NOW - 30, endpoint=B)
    assert world.read().memory == Reading(0.1, NOW - 1)


def test_a_request_after_the_last_look_cannot_be_on_the_page() -> None:
    """Else the first request to an idle engine makes its reading as old as its idleness."""
    world = World()
    world.looks[f"chat/{A.key}"] = telling(NOW - 3, NOW - 400, memory=0.1)
    world.serve(NOW - 2.5, NOW - 1)
    assert world.read().memory == Reading(0.1, NOW - 3)


def test_a_request_that_is_told_of_late_is_on_the_page_already() -> None:
    """Else the last request before a pause makes the idle engine's page a frozen one."""
    world = World()
    world.looks[f"chat/{A.key}"] = telling(NOW - 1, NOW - 20, memory=0.1)
    world.serve(NOW - 20 + LOG_DELAY_S * 0.9)
    assert world.read().memory == Reading(0.1, NOW - 1)


def test_llama_cpps_page_is_constant_while_it_is_idle() -> None:
    """One request a minute: at no moment its page counts as frozen."""
    world = World()
    changed_at = NOW
    for tenth in range(3000):
        now = NOW + tenth / 10
        if tenth % 600 == 0:
            changed_at = now  # the page changes when the request ends
        if tenth % 600 == 3:
            world.serve(now)  # and Envoy's log comes a moment later
        if tenth % 50 == 7:
            world.looks[f"chat/{A.key}"] = telling(now, changed_at if tenth % 600 > 7 else now, p99_s=0.1)
        if tenth % 5 == 0 and tenth > 7:
            found = world.read(now=now).p99_s
            assert found is not None
            assert now - found.at <= 5


def test_a_frozen_shared_page_is_frozen_for_the_endpoint_that_served() -> None:
    world = World(dcgm=[DCGM])
    hosts = {"10.0.0.1": {"memory": 0.1}, "10.0.0.2": {"memory": 0.2}}
    world.looks[DCGM_KEY] = sharing(hosts, NOW - 1, NOW - 40)
    world.serve(NOW - 30, endpoint=A)
    assert world.read(A).memory == Reading(0.1, NOW - 40)
    assert world.read(B).memory == Reading(0.2, NOW - 1)


def test_a_source_that_fell_silent_is_not_replaced_by_a_lesser_one() -> None:
    world = World(dcgm=[DCGM])
    world.looks[f"chat/{A.key}"] = telling(NOW - 600, memory=0.1)
    world.looks[DCGM_KEY] = OF_HOST
    assert world.read().memory == Reading(0.1, NOW - 600)


# --- P99


def test_p99_is_envoys_own_where_enough_requests_tell_it() -> None:
    world = World()
    world.looks[f"chat/{A.key}"] = telling(p99_s=0.7)
    world.serve(NOW - 4, count=MIN_REQUESTS - 1, total_s=0.3)
    assert world.read().p99_s == Reading(0.7, NOW - 1)
    world.serve(NOW - 2, total_s=0.3)
    found = world.read().p99_s
    assert found is not None
    assert found.value == pytest.approx(0.3, rel=RELATIVE_ERROR)
    assert found.at == NOW - 2


def test_too_few_requests_and_no_other_source_is_none() -> None:
    world = World()
    world.serve(NOW - 4, count=MIN_REQUESTS - 1)
    assert world.read().p99_s is None


@pytest.mark.parametrize("ended", [{"status": 429}, {"status": 500}, {"flags": ("DC",)}])
def test_only_requests_with_a_duration_count(ended: dict[str, Any]) -> None:
    world = World()
    world.serve(NOW - 4, count=100, **ended)
    world.serve(NOW - 3, count=MIN_REQUESTS - 1)
    assert world.read().p99_s is None


def test_the_p99_of_a_window_that_passed_is_none() -> None:
    world = World()
    world.serve(NOW - 70, count=100)
    assert world.read().p99_s is None


def test_another_window_is_another_latency() -> None:
    world = World()
    world.serve(NOW - 2, count=50)
    world.readings.latency = Latency()
    assert world.read().p99_s is None


# --- what it costs


def test_shared_sources_are_arranged_once_until_one_of_them_was_looked_at() -> None:
    world = World(dcgm=[DCGM])
    world.looks[DCGM_KEY] = OF_HOST
    first = world.readings._arranged()
    assert world.readings._arranged() is first
    world.looks[DCGM_KEY] = sharing({"node-a": {"memory": 0.7}})
    assert world.read().memory == Reading(0.7, NOW - 2)


def test_another_telemetry_config_is_followed() -> None:
    world = World(dcgm=[DCGM])
    world.looks[DCGM_KEY] = OF_HOST
    assert world.read().memory is not None
    world.readings.telemetry = World().settings.telemetry
    assert world.read().memory is None


def test_looks_without_samples_arrange_nothing() -> None:
    assert arranged([(Look(), Join.HOST)]).of(A) == []

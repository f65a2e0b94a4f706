"""What finished requests say of endpoints and pools, also of ones that come and go."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from extproc.loops.latency import OTHER, SETS_AT_A_TIME, Latency, LoadReport
from extproc.windows.latency import NO_TAIL, UNSEEN, Tail
from extproc.windows.sketch import RELATIVE_ERROR
from tests.windows.samples import sample

A, A_GRPC, B = "10.0.0.1:8000", "10.0.0.1:8001", "10.0.0.2:8000"
ENDPOINTS = {A: "a:8000", A_GRPC: "a:8000", B: "b:8000"}
POOLS = {"chat": "chat", "chat-grpc": "chat", "long": "long"}


def placed(**options: Any) -> Latency:
    latency = Latency(**options)
    latency.place(ENDPOINTS, POOLS, now=0.0)
    return latency


def test_both_ports_of_an_endpoint_are_one_endpoint() -> None:
    latency = placed()
    latency.record([sample(upstream=A), sample(upstream=A_GRPC, cluster="chat-grpc"), sample(upstream=B)], now=1.0)
    readings = latency.readings(now=1.0)
    assert {key: reading.requests for key, reading in readings.items()} == {"a:8000": 2, "b:8000": 1}
    assert readings["a:8000"].p99_s == pytest.approx(0.2, rel=RELATIVE_ERROR)
    assert readings["a:8000"].last_at == 1.0


def test_an_endpoint_without_requests_is_there_and_says_nothing() -> None:
    assert placed().readings(now=1.0) == {"a:8000": UNSEEN, "b:8000": UNSEEN}
    assert Latency().readings(now=1.0) == {}
    assert Latency().reading("a:8000", now=1.0) is UNSEEN


def test_the_tail_of_one_endpoint() -> None:
    latency = placed()
    latency.record([sample(upstream=A), sample(upstream=A_GRPC)], now=1.0)
    assert latency.tail("a:8000", now=2.0) == Tail(2, latency.reading("a:8000", now=2.0).p99_s, 1.0)
    assert latency.tail("b:8000", now=2.0) == NO_TAIL


def test_one_endpoint_by_parameter_set() -> None:
    latency = placed()
    latency.record([sample(upstream=A, params="a", total_s=2.0), sample(upstream=A_GRPC, params="b")], now=1.0)
    assert latency.under("a:8000", ["a"], now=2.0).p50_s == pytest.approx(2.0, rel=RELATIVE_ERROR)
    assert latency.under("a:8000", ["b"], now=2.0).p50_s == pytest.approx(0.2, rel=RELATIVE_ERROR)
    assert latency.under("a:8000", ["a", "b", "c"], now=2.0) == latency.reading("a:8000", now=2.0)
    assert latency.under("a:8000", ["c"], now=2.0) == latency.under("b:8000", ["a"], now=2.0) == UNSEEN
    latency.begin_set("a")
    assert latency.under("a:8000", ["a"], now=2.0) == UNSEEN
    assert (
        latency.under("a:8000", ["b"], now=2.0).requests == 1 and latency.reading("a:8000", now=2.0).requests == 2
    )


def test_sets_beyond_those_that_are_told_apart_are_blamed_on_nobody() -> None:
    latency = placed()
    latency.record([sample(upstream=A, params=f"set{number}") for number in range(SETS_AT_A_TIME + 1)], now=1.0)
    assert latency.under("a:8000", ["set0"], now=1.0).requests == 1
    assert latency.under("a:8000", [f"set{SETS_AT_A_TIME}"], now=1.0) == UNSEEN
    latency.record([sample(upstream=A, params="late")] * 2, now=100.0)
    assert latency.under("a:8000", ["late"], now=100.0).requests == 2, "silent ones made room"


def test_an_address_nobody_placed_is_counted_and_is_no_endpoint() -> None:
    latency = placed()
    latency.record([sample(upstream="10.9.9.9:1"), sample(upstream=""), sample(upstream=A)], now=1.0)
    assert latency.unplaced == 1
    assert set(latency.readings(now=1.0)) == {"a:8000", "b:8000"}


def test_pools_by_tier_and_by_route() -> None:
    latency = placed()
    latency.record(
        [
            sample(tier="strict", route="r1"),
            sample(tier="strict", route="r2", cluster="chat-grpc"),
            sample(tier="", route="r1", cluster="long", status=500),
            sample(tier="normal", route="r9", cluster="unheard-of"),
        ],
        now=1.0,
    )
    tiers = {key: reading.requests for key, reading in latency.by_tier(now=1.0).items()}
    assert tiers == {("chat", "strict"): 2, ("long", ""): 1, (OTHER, "normal"): 1}
    routes = {key: reading.errors for key, reading in latency.by_route(now=1.0).items()}
    assert routes == {("chat", "r1"): 0, ("chat", "r2"): 0, ("long", "r1"): 1, (OTHER, "r9"): 0}
    assert [latency.pool_of(cluster) for cluster in ("chat-grpc", "long", "x", "")] == [
        "chat",
        "long",
        OTHER,
        OTHER,
    ]


def test_100_000_routes_and_tiers_are_bounded() -> None:
    latency = placed(max_series=50)
    for number in range(100_000):
        latency.record([sample(route=f"r{number}", tier=f"t{number}")], now=1.0)
    for table in (latency.by_tier(now=1.0), latency.by_route(now=1.0)):
        assert len(table) == 51
        assert table[OTHER, OTHER].requests == 100_000 - 50


# --- answered since a page changed


def test_answers_since_a_time_tell_a_frozen_page_from_an_idle_engine() -> None:
    latency = placed()
    for second in range(10):
        latency.record([sample(), sample(status=503), sample(status=429)], now=100.0 + second)
    assert latency.served_since("a:8000", 100.0, now=109.5) == 20
    assert latency.served_since("a:8000", 107.0, now=109.5) == 6
    assert latency.served_since("a:8000", 106.5, now=109.5) == 6
    assert latency.served_since("a:8000", 110.0, now=112.0) == 0
    assert latency.served_since("b:8000", 0.0, now=112.0) == 0
    assert latency.served_since("never", 0.0, now=112.0) == 0


def test_what_the_engine_did_not_answer_is_not_served() -> None:
    latency = placed()
    refused = sample(status=503, flags=("UF",), first_byte_s=None)
    latency.record([refused, sample(status=503, flags=("UO",)), sample(status=0, flags=("DC",))], now=1.0)
    assert latency.served_since("a:8000", 0.0, now=1.0) == 0


# --- load reports


def test_the_latest_load_report_of_each_endpoint() -> None:
    latency = placed()
    latency.record([sample(orca={"kv": 0.1}), sample(orca={"kv": 0.2}), sample()], now=5.0)
    latency.record([sample()], now=9.0)
    assert latency.load_report("a:8000") == LoadReport({"kv": 0.2}, 5.0)
    assert latency.load_report("b:8000") is None


# --- endpoints that come and go


def test_an_endpoint_that_is_gone_for_a_moment_keeps_what_is_known_of_it() -> None:
    latency = placed()
    latency.record([sample()], now=10.0)
    latency.place({B: "b:8000"}, POOLS, now=20.0)
    assert set(latency.readings(now=20.0)) == {"b:8000"}
    latency.record([sample()], now=21.0)  # it ran when its endpoint went
    latency.place(ENDPOINTS, POOLS, now=30.0)
    assert latency.readings(now=30.0)["a:8000"].requests == 1
    assert latency.unplaced == 1


def test_an_endpoint_that_is_gone_for_long_begins_anew() -> None:
    latency = placed()
    latency.record([sample(orca={"kv": 0.2})], now=10.0)
    latency.place({B: "b:8000"}, POOLS, now=100.0)
    latency.place(ENDPOINTS, POOLS, now=101.0)
    assert latency.readings(now=101.0)["a:8000"] is UNSEEN
    assert latency.load_report("a:8000") is None


def test_an_endpoint_that_stays_is_never_forgotten() -> None:
    latency = placed()
    latency.record([sample()], now=10.0)
    latency.place(ENDPOINTS, POOLS, now=1e6)
    assert latency.readings(now=1e6)["a:8000"].last_at == 10.0


def test_10_000_endpoints_that_came_and_went_leave_nothing() -> None:
    latency = Latency()
    for number in range(10_000):
        latency.place({A: f"pod-{number}:8000"}, POOLS, now=number * 10.0)
        latency.record([sample(upstream=A)], now=number * 10.0)
    assert len(latency._endpoints) <= 8


class Comings(RuleBasedStateMachine):
    """Requests end while their endpoints come and go and the clock jumps."""

    def __init__(self) -> None:
        super().__init__()
        self.latency = placed()
        self.now = 1000.0
        self.ended = 0

    @rule(step=st.sampled_from([0.0, 0.5, 3.0, 61.0, 1e7, -2.0, -90.0]))
    def time_passes(self, step: float) -> None:
        self.now += step

    @rule(here=st.sets(st.sampled_from(sorted(ENDPOINTS))))
    def endpoints_change(self, here: set[str]) -> None:
        self.latency.place({address: ENDPOINTS[address] for address in here}, POOLS, now=self.now)

    @rule(
        upstream=st.sampled_from([*ENDPOINTS, "", "10.9.9.9:1"]),
        status=st.sampled_from([0, 200, 404, 503]),
        flags=st.sampled_from([(), ("UF",), ("UO",), ("DC",)]),
    )
    def a_request_ends(self, upstream: str, status: int, flags: tuple[str, ...]) -> None:
        self.latency.record([sample(upstream=upstream, status=status, flags=flags)], now=self.now)
        self.ended += 1

    @invariant()
    def nothing_is_negative_or_counted_twice(self) -> None:
        readings = self.latency.readings(now=self.now)
        assert sum(reading.requests for reading in readings.values()) <= self.ended
        for key, reading in readings.items():
            assert 0 <= reading.errors <= reading.requests
            assert 0 <= self.latency.served_since(key, self.now - 30, now=self.now) <= self.ended
            assert reading.last_at is not None or reading.requests == 0


TestComings = Comings.TestCase
TestComings.settings = hypothesis_settings(max_examples=40, stateful_step_count=30, deadline=None)


@given(st.lists(st.tuples(st.sampled_from([A, B]), st.floats(0.001, 10)), min_size=1, max_size=50))
def test_endpoints_do_not_mix(seen: list[tuple[str, float]]) -> None:
    latency = placed()
    latency.record([sample(upstream=upstream, total_s=total_s) for upstream, total_s in seen], now=1.0)
    for upstream in (A, B):
        totals = [total_s for at, total_s in seen if at == upstream]
        worst = latency.reading(ENDPOINTS[upstream], now=1.0).p999_s
        assert worst == (pytest.approx(max(totals), rel=RELATIVE_ERROR + 1e-9) if totals else None)

"""A pool's weights: exact sums, bounded steps, no herd, no flap, and a reason for each."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.scoring.values import EndpointInput, ScoringRules, WeightReason
from extproc.scoring.weigh import weigh
from tests.scoring.pools import NOW, endpoint, inputs, weights

RULES = ScoringRules()


def reasons(found: object) -> list[str]:
    return [each.reason.value for each in found.weights]  # type: ignore[attr-defined]


def test_shares_follow_scores() -> None:
    pool = [endpoint("a", 0.0, 0.0), endpoint("b", 0.5, 0.5), endpoint("c", 0.5, 0.5)]
    found = weigh(pool, {}, RULES, now=NOW)
    assert weights(found) == [500, 250, 250]
    assert (found.total, found.saturated, found.changed) == (1000, False, True)
    assert reasons(found) == ["memory"] * 3
    assert found.shares == {"a": 500, "b": 250, "c": 250}


def test_an_unchanged_tick_pushes_nothing() -> None:
    pool = [endpoint("a", 0.1, 0.2), endpoint("b", 0.5, 0.5), endpoint("c", 0.6, 0.3)]
    first = weigh(pool, {}, RULES, now=NOW)
    again = weigh(pool, first.shares, RULES, now=NOW)
    assert (weights(again), again.changed) == (weights(first), False)
    assert reasons(again) == reasons(first)


@pytest.mark.parametrize("age_s", [1.0, 1000.0])
def test_the_only_one_gets_all_whatever_is_known_of_it(age_s: float) -> None:
    """No reading can change that: an idle pool of one is no fault to look for."""
    found = weigh([endpoint("a", 0.9, 0.9, age_s=age_s)], {}, RULES, now=NOW)
    assert (weights(found), reasons(found)) == ([found.total], ["alone"])
    assert found.weights[0].terms, "what is known of it is told all the same"


@pytest.mark.parametrize("place", range(3))
def test_a_score_of_zero_drains(place: int) -> None:
    pool = [endpoint(str(i), 1.0 if i == place else 0.2, 9.0 if i == place else 0.2) for i in range(3)]
    found = weigh(pool, {}, RULES, now=NOW)
    assert weights(found) == [0 if i == place else 500 for i in range(3)]
    assert [each.draining for each in found.weights] == [i == place for i in range(3)]


def test_all_zero_means_equal_and_saturated() -> None:
    found = weigh([endpoint(str(i), 1.0, 9.0) for i in range(3)], {}, RULES, now=NOW)
    assert (weights(found), found.saturated) == ([334, 333, 333], True)
    assert reasons(found) == ["saturated"] * 3


def test_one_endpoint_has_it_all() -> None:
    assert weights(weigh([endpoint("a", 0.99, 9.0)], {}, RULES, now=NOW)) == [1000]


def test_a_thousand_endpoints_with_one_that_is_dead_and_one_that_is_full() -> None:
    pool = [endpoint(str(i), (i % 10) / 10, healthy=i != 7) for i in range(999)] + [endpoint("full", 1.0, 5.0)]
    found = weigh(pool, {}, RULES, now=NOW)
    assert found.total == sum(weights(found)) == 100_000
    assert (weights(found)[7], weights(found)[999]) == (0, 0)
    assert (reasons(found)[7], reasons(found)[999]) == ("draining", "memory")


class TestHealth:
    def test_an_unhealthy_endpoint_has_no_share_and_no_part_in_the_sum(self) -> None:
        pool = [endpoint("a", 0.5), endpoint("b", 0.0, healthy=False), endpoint("c", 0.5)]
        found = weigh(pool, {}, RULES, now=NOW)
        assert weights(found) == [500, 0, 500]
        assert reasons(found) == ["missing", "draining", "missing"]
        assert found.weights[1].draining
        assert found.weights[1].score is None

    def test_its_share_goes_at_once_and_is_spread(self) -> None:
        pool = [endpoint("a", 0.5, healthy=False), endpoint("b", 0.5), endpoint("c", 0.5)]
        found = weigh(pool, {"a": 800, "b": 100, "c": 100}, RULES, now=NOW)
        assert (weights(found), found.changed) == ([0, 500, 500], True)

    def test_it_comes_back_with_a_fair_median(self) -> None:
        dead = weigh([endpoint("a", healthy=False), endpoint("b", 0.5), endpoint("c", 0.5)], {}, RULES, now=NOW)
        alive = weigh([endpoint("a"), endpoint("b", 0.5), endpoint("c", 0.5)], dead.shares, RULES, now=NOW)
        assert weights(alive) == [334, 333, 333]
        assert reasons(alive)[0] == "median"

    def test_it_comes_back_without_any_telemetry(self) -> None:
        dead = weigh([endpoint("a", healthy=False), endpoint("b", 0.5), endpoint("c", 0.5)], {}, RULES, now=NOW)
        alive = weigh([endpoint("a"), endpoint("b"), endpoint("c")], dead.shares, RULES, now=NOW)
        assert (weights(alive), reasons(alive)) == ([334, 333, 333], ["last_good"] * 3)

    def test_none_is_healthy(self) -> None:
        found = weigh([endpoint("a", 0.1, healthy=False)], {"a": 1000}, RULES, now=NOW)
        assert (weights(found), found.total, found.saturated, found.changed) == ([0], 0, False, True)


class TestNoData:
    def test_none_ever(self) -> None:
        found = weigh([endpoint(key) for key in "abc"], {}, RULES, now=NOW)
        assert (weights(found), reasons(found)) == ([334, 333, 333], ["equal"] * 3)

    @pytest.mark.parametrize("age_s", [15.1, 20, 31, 3600])
    def test_the_last_good_weights_stay(self, age_s: float) -> None:
        pool = [endpoint("a", 0.9, 0.9, age_s=age_s), endpoint("b", 0.0, 0.0, age_s=age_s), endpoint("c")]
        found = weigh(pool, {"a": 700, "b": 200, "c": 100}, RULES, now=NOW)
        assert (weights(found), found.changed) == ([700, 200, 100], False)
        assert reasons(found) == ["last_good"] * 3

    def test_a_new_endpoint_joins_the_last_good_ones(self) -> None:
        found = weigh([endpoint(key) for key in "abc"], {"a": 500, "b": 500}, RULES, now=NOW)
        assert weights(found) == [334, 333, 333]


class TestStale:
    def test_a_frozen_idle_exporter_draws_no_herd(self) -> None:
        """Said "idle" long ago, in a busy pool: no more than a fair share, at any age past the limit."""
        busy = [endpoint(f"busy-{i}", 0.8, 0.5) for i in range(4)]
        fresh, *_ = weights(weigh([endpoint("idle", 0.0, 0.5), *busy], {}, RULES, now=NOW))
        old, *_ = weights(weigh([endpoint("idle", 0.0, 0.5, age_s=30, p99_age_s=0), *busy], {}, RULES, now=NOW))
        assert fresh > 300
        assert old == 200

    def test_it_fades_step_by_step(self) -> None:
        busy = [endpoint(f"busy-{i}", 0.8, 0.5) for i in range(4)]
        shares = [
            weights(weigh([endpoint("idle", 0.0, 0.5, age_s=age_s, p99_age_s=0), *busy], {}, RULES, now=NOW))[0]
            for age_s in range(16, 31)
        ]
        assert shares == sorted(shares, reverse=True)
        assert len(set(shares)) == len(shares)

    def test_a_failed_scrape_now_and_then_changes_nothing(self) -> None:
        """One of three fails, so that readings are up to two intervals old."""
        steady = weigh([endpoint("a", 0.3, 0.3), endpoint("b", 0.6, 0.6)], {}, RULES, now=NOW)
        for age_s in (5, 10, 14.9):
            pool = [endpoint("a", 0.3, 0.3, age_s=age_s), endpoint("b", 0.6, 0.6)]
            assert not weigh(pool, steady.shares, RULES, now=NOW).changed


class TestStep:
    def test_no_share_moves_by_more_than_a_quarter(self) -> None:
        pool = [endpoint("a", 0.0, 0.0), endpoint("b", 1.0, 0.95)]
        found = weigh(pool, {"a": 100, "b": 900}, RULES, now=NOW)
        assert weights(found) == [349, 651]
        assert reasons(found) == ["stepped"] * 2
        assert [each.moved_by for each in found.weights] == ["memory", "memory"]

    def test_it_arrives(self) -> None:
        pool = [endpoint("a", 0.0, 0.0), endpoint("b", 1.0, 9.0)]
        shares = {"a": 0, "b": 1000}
        seen = []
        for _ in range(6):
            found = weigh(pool, shares, RULES, now=NOW)
            seen.append(weights(found)[0])
            shares = found.shares
        assert seen == [249, 498, 747, 996, 1000, 1000]


class TestHold:
    def test_a_trifle_is_not_pushed(self) -> None:
        pool = [endpoint("a", 0.5), endpoint("b", 0.51)]
        found = weigh(pool, {"a": 500, "b": 500}, RULES, now=NOW)
        assert (weights(found), reasons(found), found.changed) == ([500, 500], ["held"] * 2, False)

    def test_a_hundredth_is(self) -> None:
        pool = [endpoint("a", 0.49), endpoint("b", 0.51)]
        assert weigh(pool, {"a": 500, "b": 500}, RULES, now=NOW).changed

    def test_small_drifts_add_up(self) -> None:
        shares = {"a": 500, "b": 500}
        pushes = 0
        for tick in range(40):
            found = weigh([endpoint("a", 0.5 + tick / 200), endpoint("b", 0.5)], shares, RULES, now=NOW)
            shares, pushes = found.shares, pushes + found.changed
        assert 5 < pushes < 30
        assert abs(shares["a"] - 379) < 10

    @pytest.mark.parametrize("before", [{"a": 995, "b": 5}, {"a": 1000, "b": 0}])
    def test_on_and_off_are_no_trifle(self, before: dict[str, int]) -> None:
        full = weigh([endpoint("a", 0.0, 0.0), endpoint("b", 1.0, 9.0)], before, RULES, now=NOW)
        nearly = weigh([endpoint("a", 0.0, 0.0), endpoint("b", 1.0, 0.99)], before, RULES, now=NOW)
        assert weights(full) == [1000, 0]
        assert weights(nearly)[1] > 0

    def test_in_a_large_pool_a_hundredth_of_the_total_is_ten_fair_shares(self) -> None:
        pool = [endpoint(str(i), 0.5) for i in range(999)]
        before = weigh([*pool, endpoint("x", 0.5)], {}, RULES, now=NOW)
        found = weigh([*pool, endpoint("x", 0.9)], before.shares, RULES, now=NOW)
        assert found.changed
        assert weights(found)[999] == 20

    def test_an_endpoint_that_comes_or_goes_is_never_held(self) -> None:
        same = {"a": 334, "b": 333, "c": 333}
        assert weigh([endpoint("a", 0.5), endpoint("b", 0.5)], same, RULES, now=NOW).changed
        assert weigh([endpoint(key, 0.5) for key in "abcd"], same, RULES, now=NOW).changed


class TestWhateverIsRead:
    previous = st.dictionaries(st.sampled_from([f"e{i}" for i in range(14)]), st.integers(0, 1000), max_size=14)

    @given(inputs(), previous)
    def test_the_sum_is_exact_and_the_dead_get_nothing(
        self, pool: list[EndpointInput], before: dict[str, int]
    ) -> None:
        found = weigh(pool, before, RULES, now=NOW)
        healthy = [each.healthy for each in pool]
        assert sum(weights(found)) == found.total == (max(1000, 100 * len(pool)) if any(healthy) else 0)
        assert [each.key for each in found.weights] == [each.key for each in pool]
        for each, alive in zip(found.weights, healthy, strict=True):
            assert each.draining == (each.weight == 0)
            assert alive or each.weight == 0
            assert (each.reason is WeightReason.DRAINING) == (not alive)
            assert each.score is None or (0 <= each.score <= 1 and math.isfinite(each.score))

    @given(inputs(), previous)
    def test_no_share_moves_too_far(self, pool: list[EndpointInput], before: dict[str, int]) -> None:
        pool = [msgspec.structs.replace(each, healthy=True) for each in pool]
        first = weigh(pool, before, RULES, now=NOW)
        again = weigh([*reversed(pool)], first.shares, RULES, now=NOW + 20)
        for each in again.weights:
            assert abs(each.weight - first.shares[each.key]) <= 0.25 * again.total

    @given(inputs(), previous)
    def test_it_comes_to_rest(self, pool: list[EndpointInput], before: dict[str, int]) -> None:
        """With the same readings, the shares stop changing within the steps it takes to cross the total."""
        for _ in range(7):
            found = weigh(pool, before, RULES, now=NOW)
            before = found.shares
        assert not found.changed

    @given(inputs(healthy=st.just(True)))
    def test_a_better_score_never_gets_less(self, pool: list[EndpointInput]) -> None:
        found = weigh(pool, {}, RULES, now=NOW)
        if found.saturated or found.weights[0].reason is WeightReason.EQUAL:
            return
        for one in found.weights:
            for other in found.weights:
                assert not (one.score or 0) > (other.score or 0) or one.weight >= other.weight

"""The breaker as a conversation of windows, probes and time, and as a machine that is killed after every step."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from extproc.protect import breaker as machine
from extproc.protect.breaker import Breaker, Seen, Signal, State
from extproc.protect.settings import BreakerConfig, TripRule

CONFIG = BreakerConfig(
    trip=[TripRule(error_rate=0.05, p99_ms=800.0), TripRule(error_rate=0.5)],
    min_requests=20,
    open_s=10.0,
    max_open_s=80.0,
    jitter_share=0.1,
    probe_share=0.05,
    probe_concurrency=2,
    probes=10,
    bad_probes=1,
    half_open_s=60.0,
)
BAD = Seen(100, 60, 2.0)
GOOD = Seen(100, 0, 0.1)


def stepped(breaker: Breaker, seen: Seen = GOOD, *, now: float, jitter: float = 0.0) -> Breaker:
    return machine.step(breaker, seen, CONFIG, now=now, jitter=jitter)[0]


def opened(now: float = 100.0) -> Breaker:
    return stepped(Breaker(), BAD, now=now)


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (Seen(), None),
        (Seen(19, 19, 9.0), None),  # too few
        (Seen(100, 6, 0.9), "error_rate 0.06, p99 0.90 s"),
        (Seen(100, 6, 0.8), None),  # not above both
        (Seen(100, 5, 0.9), None),
        (Seen(100, 6, None), None),
        (Seen(100, 51, 0.01), "error_rate 0.51"),
        (Seen(100, 50, None), None),
        (Seen(100, 0, 60.0), None),
    ],
)
def test_what_trips(seen: Seen, why: str | None) -> None:
    assert machine.tripped(seen, CONFIG) == why


def test_no_rule_never_trips() -> None:
    assert machine.tripped(Seen(100, 100, 60.0), CONFIG.model_copy(update={"trip": []})) is None


def test_from_closed_to_open_to_half_open_to_closed() -> None:
    breaker = opened(100.0)
    assert (breaker.state, breaker.since, breaker.until, breaker.trips) == (State.OPEN, 100.0, 110.0, 1)
    assert breaker.reason == "error_rate 0.60, p99 2.00 s"
    assert stepped(breaker, now=109.9) == breaker
    breaker = stepped(breaker, now=110.0)
    assert (breaker.state, breaker.since) == (State.HALF_OPEN, 110.0)
    breaker = stepped(machine.probed(breaker, good=9, bad=0), now=111.0)
    assert breaker.state is State.HALF_OPEN
    breaker = stepped(machine.probed(breaker, good=1, bad=0), now=112.0)
    assert (breaker.state, breaker.since, breaker.good) == (State.CLOSED, 112.0, 0)
    assert breaker.reason, "what it was is still told"


def test_bad_probes_open_it_again_for_longer() -> None:
    breaker = stepped(opened(0.0), now=10.0)
    breaker = stepped(machine.probed(breaker, good=3, bad=2), now=11.0)
    assert (breaker.state, breaker.trips, breaker.until) == (State.OPEN, 2, 31.0)
    assert breaker.reason == "2 of 5 probes bad"


def test_one_bad_probe_may_be_allowed() -> None:
    breaker = stepped(opened(0.0), now=10.0)
    assert stepped(machine.probed(breaker, good=9, bad=1), now=11.0).state is State.CLOSED


def test_with_little_traffic_time_proves_it_if_any_probe_came() -> None:
    breaker = stepped(opened(0.0), now=10.0)
    assert stepped(breaker, now=500.0).state is State.HALF_OPEN, "nobody tried it"
    breaker = machine.probed(breaker, good=1, bad=0)
    assert stepped(breaker, now=69.0).state is State.HALF_OPEN
    assert stepped(breaker, now=70.0).state is State.CLOSED


def test_probes_of_another_state_say_nothing() -> None:
    assert machine.probed(opened(), good=5, bad=0) == opened()
    assert machine.probed(Breaker(), good=0, bad=5) == Breaker()


@pytest.mark.parametrize(
    ("trips", "jitter", "seconds"), [(1, 0, 10), (2, 0, 20), (4, 0, 80), (9, 0, 80), (999, 0, 80), (1, 0.5, 10.5)]
)
def test_back_off_doubles_to_its_limit_and_jitters(trips: int, jitter: float, seconds: float) -> None:
    assert machine.back_off_s(trips, CONFIG, jitter=jitter) == pytest.approx(seconds)


def test_after_a_quiet_time_the_back_off_begins_anew() -> None:
    closed = Breaker(state=State.CLOSED, since=0.0, trips=4, reason="x")
    assert stepped(closed, BAD, now=80.0).trips == 5
    assert stepped(closed, BAD, now=81.0).trips == 1


def test_the_table_is_all_there_is() -> None:
    for state in State:
        for moved in Signal:
            breaker = Breaker(state=state, since=1.0)
            after = machine.moved_by(breaker, moved, "why", CONFIG, now=5.0, jitter=0.0)
            expected = machine.TRANSITIONS.get((state, moved))
            assert after.state is (expected or state)
            assert expected or after is breaker


def test_a_clock_that_steps_back_keeps_nobody_waiting() -> None:
    breaker = opened(1_000_000.0)
    settled = machine.settled(breaker, CONFIG, now=50.0)
    assert (settled.since, settled.until) == (50.0, 50.0 + 80.0 * 1.1)
    assert stepped(settled, now=139.0).state is State.HALF_OPEN


def test_slow_probes() -> None:
    assert machine.slow_s(CONFIG) == 0.8
    assert machine.slow_s(CONFIG.model_copy(update={"trip": [TripRule(error_rate=0.5)]})) is None


@given(
    steps=st.lists(
        st.tuples(st.sampled_from([BAD, GOOD, Seen()]), st.floats(-50, 200), st.integers(0, 6), st.integers(0, 2)),
        max_size=40,
    )
)
def test_any_history_goes_on_the_same_after_a_restart_at_every_step(
    steps: list[tuple[Seen, float, int, int]],
) -> None:
    alive, restarted, now = Breaker(), Breaker(), 1000.0
    for seen, wait, good, bad in steps:
        now += wait
        alive = stepped(machine.probed(alive, good=good, bad=bad), seen, now=now)
        restarted = msgspec.json.decode(msgspec.json.encode(restarted), type=Breaker)
        restarted = stepped(machine.probed(restarted, good=good, bad=bad), seen, now=now)
        assert restarted == alive


class BreakerMachine(RuleBasedStateMachine):
    """Any order of traffic, time and clock steps."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker()
        self.now = 10_000.0
        self.opened_at: float | None = None

    def _step(self, seen: Seen) -> None:
        before = self.breaker
        self.breaker, moved = machine.step(before, seen, CONFIG, now=self.now, jitter=0.5)
        expected = State(before.state) if moved is None else machine.TRANSITIONS[before.state, moved]
        assert self.breaker.state is expected

    @rule(seconds=st.floats(0, 300))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self._step(Seen())

    @rule(errors=st.integers(0, 100), p99=st.none() | st.floats(0, 10))
    def traffic(self, errors: int, p99: float | None) -> None:
        self._step(Seen(100, errors, p99))

    @rule(good=st.integers(0, 12), bad=st.integers(0, 3))
    def probes(self, good: int, bad: int) -> None:
        self.breaker = machine.probed(self.breaker, good=good, bad=bad)

    @rule(seconds=st.floats(0, 1_000_000))
    def clock_steps_back(self, seconds: float) -> None:
        self.now -= seconds
        self._step(Seen())

    @rule()
    def restart(self) -> None:
        self.breaker = msgspec.json.decode(msgspec.json.encode(self.breaker), type=Breaker)

    @precondition(lambda self: self.breaker.state is State.OPEN)
    @rule()
    def an_open_one_is_tried_out_in_bounded_time(self) -> None:
        self.now += CONFIG.max_open_s * (1 + CONFIG.jitter_share)
        self._step(Seen())
        assert self.breaker.state is State.HALF_OPEN

    @invariant()
    def waits_are_bounded(self) -> None:
        settled = machine.settled(self.breaker, CONFIG, now=self.now)
        assert settled.until - self.now <= CONFIG.max_open_s * (1 + CONFIG.jitter_share) + 1e-6
        assert settled.since <= self.now
        assert not (self.breaker.state is State.OPEN and not self.breaker.reason)
        assert self.breaker.good >= 0 and self.breaker.bad >= 0


TestBreakerMachine = BreakerMachine.TestCase
TestBreakerMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

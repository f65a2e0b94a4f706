"""The history of parameter sets: what the config offers, what is rolled back, what an operator says."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from extproc.protect import history as sets
from extproc.protect.history import Action, History, Offer, ParameterVersion, Standing


def offer(version: str) -> Offer:
    return Offer(version, "default", {"v": version})


def offered(history: History, version: str, *, now: float = 1.0, blocked: str = "") -> History:
    return sets.offered(history, offer(version), now=now, blocked=blocked)


def rolled_back(history: History, *, now: float = 9.0) -> History:
    return sets.rolled_back(history, reason="slo_breached", evidence={"p99_s": 2.0}, now=now)


def standing(history: History, version: str) -> Standing:
    found = history.of(version)
    assert found is not None
    return found.standing


@pytest.fixture
def second() -> History:
    """`a` proved itself, `b` came after it."""
    history = sets.proved(offered(History(), "a"), by="protection", reason="ten minutes", now=2.0)
    return offered(history, "b", now=3.0)


def test_the_first_set_is_active_whatever_blocks() -> None:
    assert offered(History(), "a", blocked="parameter_breaker").active == "a"


def test_a_changed_set_becomes_a_candidate_and_is_activated_once() -> None:
    history = offered(offered(History(), "a"), "b", now=2.0)
    assert (history.active, standing(history, "a"), standing(history, "b")) == (
        "b",
        Standing.RETIRED,
        Standing.ACTIVE,
    )
    assert [each.action for each in history.records] == [Action.OFFERED, Action.ACTIVATED] * 2
    assert offered(history, "b", now=3.0) == history


def test_a_config_that_goes_back_is_followed() -> None:
    history = offered(offered(offered(History(), "a"), "b"), "a", now=4.0)
    assert history.active == "a"


def test_a_rollback_goes_to_the_last_good_one_once(second: History) -> None:
    history = rolled_back(second)
    assert (history.active, standing(history, "b")) == ("a", Standing.REFUSED)
    record = history.records[-1]
    assert (record.action, record.version, record.before, record.by) == (
        Action.ROLLED_BACK,
        "a",
        "b",
        "protection",
    )
    assert record.evidence == {"p99_s": 2.0}
    assert not sets.can_roll_back(history)
    assert rolled_back(history) == history, "never to and fro"


def test_what_was_rolled_back_stays_away_until_somebody_says_so(second: History) -> None:
    history = rolled_back(second)
    for _ in range(3):
        history = offered(history, "b", now=20.0)
        assert history.active == "a"
    history = sets.activated(history, "b", by="operator", reason="it was the network", now=30.0)
    assert (history.active, standing(history, "b")) == ("b", Standing.ACTIVE)


def test_nothing_to_go_back_to() -> None:
    history = offered(offered(History(), "a"), "b")
    assert not sets.can_roll_back(history)
    assert rolled_back(history) == history


def test_a_set_that_proved_itself_is_what_is_gone_back_to_later(second: History) -> None:
    history = sets.proved(second, by="protection", reason="ten minutes", now=5.0)
    assert history.last_good == "b" and not sets.can_roll_back(history)
    assert rolled_back(offered(history, "c", now=6.0)).active == "b"


def test_an_operators_choice_is_not_undone_by_the_same_config(second: History) -> None:
    history = sets.activated(second, "a", by="operator", reason="", now=4.0)
    assert offered(history, "b", now=5.0).active == "a"
    assert offered(history, "c", now=5.0).active == "c", "another set is news"


def test_while_blocked_a_set_waits_and_that_is_said_once() -> None:
    history = offered(History(), "a")
    for now in (2.0, 3.0, 4.0):
        history = offered(history, "b", now=now, blocked="parameter_breaker")
    assert (history.active, standing(history, "b")) == ("a", Standing.CANDIDATE)
    assert [each.action for each in history.records].count(Action.BLOCKED) == 1
    assert offered(history, "b", now=5.0).active == "b"


def test_a_pinned_set_stays(second: History) -> None:
    history = sets.pinned(second, pin=True, by="operator", now=4.0)
    assert rolled_back(history).active == "b"
    assert offered(history, "c", now=5.0).active == "b"
    history = sets.pinned(offered(history, "c", now=5.0), pin=False, by="operator", now=6.0)
    assert offered(history, "c", now=7.0).active == "c"


def test_an_unknown_version_cannot_be_activated(second: History) -> None:
    with pytest.raises(KeyError):
        sets.activated(second, "z", by="operator", reason="", now=4.0)


def test_a_hundred_sets_are_bounded_and_what_matters_is_kept(second: History) -> None:
    history = rolled_back(second)
    for number in range(100):
        history = offered(history, f"n{number}", now=10.0 + number)
    assert len(history.versions) == sets.MAX_SETS
    assert len(history.records) <= sets.MAX_RECORDS
    kept = {each.version for each in history.versions}
    assert {"a", "b", "n99"} <= kept, "the last good one, the refused one and the active one"
    assert offered(history, "b", now=999.0).active == "n99"


@pytest.mark.parametrize("blocked", ["", "parameter_breaker"])
def test_what_waits_is_bounded_too(second: History, blocked: str) -> None:
    history = second if blocked else sets.pinned(second, pin=True, by="operator", now=4.0)
    for number in range(300):
        history = offered(history, f"n{number}", now=10.0 + number, blocked=blocked)
    assert len(history.versions) == sets.MAX_SETS and history.active == "b"
    kept = {each.version for each in history.versions}
    assert {"a", "b", "n299"} <= kept, "the last good one, the active one and the one on offer"


def test_a_history_that_grew_too_long_is_cut_by_the_next_look(second: History) -> None:
    old = [
        ParameterVersion(version=f"n{n}", name="x", content={}, standing=Standing.CANDIDATE, seen_at=1.0)
        for n in range(300)
    ]
    history = offered(replace(second, versions=(*second.versions, *old)), "b", now=9.0)
    assert len(history.versions) == sets.MAX_SETS


def many_refused(history: History, count: int) -> History:
    for number in range(count):
        history = rolled_back(offered(history, f"r{number}", now=10.0 + number), now=10.5 + number)
    return history


def test_a_refused_set_stays_refused_however_many_follow(second: History) -> None:
    history = many_refused(rolled_back(second), 120)
    assert len(history.versions) <= sets.MAX_SETS and sets.problems(history) == ()
    history = msgspec.json.decode(msgspec.json.encode(history), type=History)
    for version in ("b", "r0", "r69", "r119"):
        history = offered(history, version, now=900.0)
        assert history.active == "a" and standing(history, version) is Standing.REFUSED
    assert len(history.versions) <= sets.MAX_SETS and sets.problems(history) == ()


def test_an_operator_forgives_a_set_whose_content_was_gone(second: History) -> None:
    history = offered(many_refused(rolled_back(second), 120), "b", now=900.0)
    history = sets.activated(history, "b", by="operator", reason="", now=901.0)
    assert offered(history, "b", now=902.0).active == "b" and "b" not in history.barred
    assert offered(offered(history, "c", now=903.0), "b", now=904.0).active == "b", "forgiven for good"


def test_a_full_memory_of_refused_sets_lets_no_new_one_come_by_itself(
    second: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sets, "MAX_BARRED", 20)
    history = many_refused(rolled_back(second), 200)
    assert history.active == "a" and len(history.barred) <= 20 + sets.MAX_SETS
    assert history.records[-1].reason == sets.FULL
    for number in range(200):
        assert offered(history, f"r{number}", now=900.0).active == "a"
    history = offered(history, "new", now=901.0)
    assert sets.activated(history, "new", by="operator", reason="", now=902.0).active == "new"


def test_a_new_name_for_the_same_content() -> None:
    history = offered(History(), "a")
    renamed = sets.offered(history, Offer("a", "other", {"v": "a"}), now=2.0)
    assert renamed.active == "a" and renamed.current is not None and renamed.current.label == "other@a"


VERSIONS = st.sampled_from(["a", "b", "c", "d"])


class HistoryMachine(RuleBasedStateMachine):
    """Any order of configs, rollbacks, operators and restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.history = History()
        self.refused: set[str] = set()
        self.now = 1.0

    def _at(self) -> float:
        self.now += 1.0
        return self.now

    @rule(version=VERSIONS, blocked=st.sampled_from(["", "parameter_breaker"]))
    def config(self, version: str, blocked: str) -> None:
        before = self.history
        self.history = offered(before, version, now=self._at(), blocked=blocked)
        if version in self.refused:
            assert self.history.active == before.active

    @rule()
    def prove(self) -> None:
        self.history = sets.proved(self.history, by="protection", reason="", now=self._at())

    @rule()
    def roll_back(self) -> None:
        before = self.history
        self.history = rolled_back(before, now=self._at())
        if self.history.active != before.active:
            assert self.history.active == before.last_good and not before.pinned
            self.refused.add(before.active)
        assert not sets.can_roll_back(self.history) or self.history == before

    @rule(version=VERSIONS)
    def operator(self, version: str) -> None:
        if self.history.of(version) is not None:
            self.history = sets.activated(self.history, version, by="operator", reason="", now=self._at())
            self.refused.discard(version)

    @rule(pin=st.booleans())
    def pin(self, pin: bool) -> None:
        self.history = sets.pinned(self.history, pin=pin, by="operator", now=self._at())

    @rule()
    def restart(self) -> None:
        """From disk: what was written is what was known."""
        self.history = msgspec.json.decode(msgspec.json.encode(self.history), type=History)

    @invariant()
    def is_whole(self) -> None:
        assert sets.problems(self.history) == ()
        refused = {each.version for each in self.history.versions if each.standing is Standing.REFUSED}
        assert refused | set(self.history.barred) == self.refused


TestHistoryMachine = HistoryMachine.TestCase
TestHistoryMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

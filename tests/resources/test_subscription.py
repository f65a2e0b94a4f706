"""One stream as a conversation, and as a state machine that meets an Envoy of every mood."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from extproc.model.xds import (
    Acknowledged,
    Encoded,
    EncodedKind,
    EncodedResource,
    Kind,
    Push,
    Refused,
    Subscribe,
    version_of,
)
from extproc.resources.subscription import Subscriptions

ROUTES = "routes"
LAYER = "layer"


def encoded(
    generation: int,
    clusters: dict[str, int],
    endpoints: dict[str, int] | None = None,
    routes: Any = None,
    layer: Any = 1,
) -> Encoded:
    """Resources by the number of their content; every cluster is EDS, `routes` may name clusters."""
    endpoints = dict.fromkeys(clusters, 1) | (endpoints or {})
    by_kind = {
        Kind.CDS: clusters,
        Kind.EDS: {name: number for name, number in endpoints.items() if name in clusters},
        Kind.RDS: {ROUTES: sorted(clusters) if routes is None else routes},
        Kind.RTDS: {LAYER: layer},
    }
    return Encoded(
        generation, {kind: of_kind(named) for kind, named in by_kind.items()}, {name: name for name in clusters}
    )


def of_kind(numbers: dict[str, Any]) -> EncodedKind:
    resources = {
        name: EncodedResource(f"{name}@{n}", f"{name}@{n}".encode(), {"n": n}) for name, n in numbers.items()
    }
    return EncodedKind(version_of({name: each.version for name, each in resources.items()}), resources)


class Talk:
    """An Envoy's side of one stream."""

    def __init__(self, offered: Encoded | None = None) -> None:
        self.subscriptions = Subscriptions()
        self.names: dict[Kind, frozenset[str]] = {}
        if offered is not None:
            self.subscriptions.offer(offered)

    def ask(self, kind: Kind, *names: str, nonce: str = "") -> None:
        self.names[kind] = frozenset(names)
        assert self.subscriptions.receive(Subscribe(kind, self.names[kind], nonce)) is None

    def ask_all(self, *clusters: str) -> None:
        self.ask(Kind.CDS)
        self.ask(Kind.EDS, *clusters)
        self.ask(Kind.RDS, ROUTES)
        self.ask(Kind.RTDS, LAYER)

    def ack(self, push: Push) -> None:
        said = Subscribe(push.kind, self.names[push.kind], push.nonce, push.version)
        assert self.subscriptions.receive(said) == Acknowledged(push)

    def nack(self, push: Push, reason: str = "bad") -> None:
        said = Subscribe(push.kind, self.names[push.kind], push.nonce, error=reason)
        assert self.subscriptions.receive(said) == Refused(push, reason)

    def pushes(self) -> list[Push]:
        found = []
        while (push := self.subscriptions.next_push()) is not None:
            found.append(push)
        return found

    def settle(self) -> list[Push]:
        """Everything that comes, each accepted."""
        found: list[Push] = []
        while pushed := self.pushes():
            for push in pushed:
                self.ack(push)
            found += pushed
        return found


def brief(pushes: Iterable[Push]) -> list[str]:
    return [f"{push.kind.name} {' '.join(each.version for each in push.resources.values())}" for push in pushes]


@pytest.fixture
def talk() -> Talk:
    """An Envoy that knows clusters a and b."""
    talk = Talk(encoded(1, {"a": 1, "b": 1}, routes="r1"))
    talk.ask_all("a", "b")
    talk.settle()
    return talk


# --- boot


def test_a_boot_in_order() -> None:
    talk = Talk(encoded(1, {"a": 1, "b": 1}, routes="r1"))
    talk.ask(Kind.CDS)
    (clusters,) = talk.pushes()
    assert brief([clusters]) == ["CDS a@1 b@1"]
    talk.ask(Kind.EDS, "a", "b")
    talk.ack(clusters)
    assert brief(talk.settle()) == ["EDS a@1 b@1"]
    talk.ask(Kind.RDS, ROUTES)
    assert brief(talk.settle()) == ["RDS routes@r1"]
    talk.ask(Kind.RTDS, LAYER)
    assert brief(talk.settle()) == ["RTDS layer@1"]
    assert talk.pushes() == []


def test_asked_all_at_once_the_routes_wait_for_the_clusters() -> None:
    talk = Talk(encoded(1, {"a": 1}, routes="r1"))
    talk.ask_all("a")
    first = talk.pushes()
    assert brief(first) == ["CDS a@1", "EDS a@1", "RTDS layer@1"]
    talk.ack(first[0])
    assert brief(talk.pushes()) == ["RDS routes@r1"]


def test_nothing_is_sent_before_there_is_something() -> None:
    talk = Talk()
    talk.ask_all("a")
    assert talk.pushes() == []
    talk.subscriptions.offer(Encoded())
    assert talk.pushes() == []
    talk.subscriptions.offer(encoded(1, {"a": 1}))
    assert brief(talk.pushes())[0] == "CDS a@1"


def test_no_clusters_at_all_are_never_sent(talk: Talk) -> None:
    talk.subscriptions.offer(encoded(2, {}, routes="r2"))
    assert [push.kind for push in talk.settle()] == [Kind.RDS]
    fresh = Talk(encoded(1, {}))
    fresh.ask(Kind.CDS)
    assert fresh.pushes() == []


def test_nothing_is_sent_of_a_kind_nobody_asked_for() -> None:
    talk = Talk(encoded(1, {"a": 1}))
    talk.ask(Kind.RTDS, LAYER)
    assert brief(talk.settle()) == ["RTDS layer@1"]


def test_routes_alone_wait_for_no_clusters() -> None:
    talk = Talk(encoded(1, {"a": 1}, routes="r1"))
    talk.ask(Kind.RDS, ROUTES)
    assert brief(talk.settle()) == ["RDS routes@r1"]


def test_a_name_that_is_not_there_is_answered_once_it_is() -> None:
    talk = Talk(encoded(1, {"a": 1}))
    talk.ask(Kind.EDS, "c")
    assert talk.pushes() == []
    talk.subscriptions.offer(encoded(2, {"a": 1, "c": 1}))
    assert brief(talk.settle()) == ["EDS c@1"]


def test_a_type_that_is_not_served_is_not_answered(talk: Talk) -> None:
    assert talk.subscriptions.receive(Subscribe(None, type_url="other")) is None
    assert talk.pushes() == []


def test_a_reconnected_envoy_that_has_everything_is_answered_all_the_same(talk: Talk) -> None:
    again = Talk(encoded(1, {"a": 1}))
    version = encoded(1, {"a": 1}).of(Kind.CDS).version
    again.names[Kind.CDS] = frozenset()
    assert again.subscriptions.receive(Subscribe(Kind.CDS, nonce="old stream's", version=version)) is None
    (push,) = again.settle()
    assert push.version == version


# --- changes


def test_an_unchanged_offer_sends_nothing(talk: Talk) -> None:
    talk.subscriptions.offer(encoded(2, {"a": 1, "b": 1}, routes="r1"))
    assert talk.pushes() == []


def test_of_endpoints_only_what_changed_is_sent(talk: Talk) -> None:
    talk.subscriptions.offer(encoded(2, {"a": 1, "b": 1}, {"b": 2}, routes="r1"))
    (push,) = talk.settle()
    assert brief([push]) == ["EDS b@2"]
    assert push.generation == 2
    assert push.version == encoded(2, {"a": 1, "b": 1}, {"b": 2}).of(Kind.EDS).version


def test_clusters_are_sent_whole_and_changed_ones_get_their_endpoints_again(talk: Talk) -> None:
    talk.subscriptions.offer(encoded(2, {"a": 1, "b": 2}, routes="r1"))
    assert brief(talk.settle()) == ["CDS a@1 b@2", "EDS b@1"]


def test_a_change_of_everything_keeps_the_order(talk: Talk) -> None:
    talk.subscriptions.offer(encoded(2, {"a": 2, "b": 1}, {"b": 2}, routes="r2", layer=2))
    first = talk.pushes()
    assert brief(first) == ["CDS a@2 b@1", "EDS a@1 b@2", "RTDS layer@2"]
    talk.ack(first[1])
    assert talk.pushes() == [], "the clusters are still warming"
    talk.ack(first[0])
    assert brief(talk.pushes()) == ["RDS routes@r2"]


def test_a_new_cluster_and_its_route(talk: Talk) -> None:
    talk.subscriptions.offer(encoded(2, {"a": 1, "b": 1, "c": 1}, routes="r2"))
    (clusters,) = talk.pushes()
    assert brief([clusters]) == ["CDS a@1 b@1 c@1"]
    talk.ask(Kind.EDS, "a", "b", "c", nonce=talk.subscriptions._of[Kind.EDS].nonce)
    (endpoints,) = talk.pushes()
    assert brief([endpoints]) == ["EDS c@1"]
    talk.ack(endpoints)
    talk.ack(clusters)
    assert brief(talk.settle()) == ["RDS routes@r2"]


def test_a_cluster_leaves_after_the_routes_that_named_it(talk: Talk) -> None:
    talk.subscriptions.offer(encoded(2, {"a": 1}, routes="r2"))
    (routes,) = talk.pushes()
    assert brief([routes]) == ["RDS routes@r2"]
    talk.ack(routes)
    assert brief(talk.settle()) == ["CDS a@1"]


def test_a_cluster_that_leaves_while_another_comes(talk: Talk) -> None:
    talk.subscriptions.offer(encoded(2, {"a": 1, "c": 1}, routes="r2"))
    (both,) = talk.pushes()
    assert brief([both]) == ["CDS b@1 a@1 c@1"]
    assert both.version not in (
        encoded(1, {"a": 1, "b": 1}).of(Kind.CDS).version,
        encoded(2, {"a": 1, "c": 1}).of(Kind.CDS).version,
    )
    talk.ack(both)
    assert brief(talk.settle()) == ["RDS routes@r2", "CDS a@1 c@1"]


def test_a_cluster_stays_while_routes_without_it_are_refused(talk: Talk) -> None:
    talk.subscriptions.offer(encoded(2, {"a": 1}, routes="r2"))
    (routes,) = talk.pushes()
    talk.nack(routes)
    assert talk.pushes() == []
    talk.subscriptions.offer(encoded(3, {"a": 1}, routes="r3"))
    assert brief(talk.settle()) == ["RDS routes@r3", "CDS a@1"]


def test_a_cluster_no_route_had_leaves_at_once(talk: Talk) -> None:
    talk.subscriptions.offer(encoded(2, {"a": 1}, routes="r1"))
    assert brief(talk.settle()) == ["CDS a@1"]


def test_slow_envoys_get_the_latest_only(talk: Talk) -> None:
    talk.subscriptions.offer(encoded(2, {"a": 1, "b": 1}, {"a": 2}, routes="r1"))
    (slow,) = talk.pushes()
    for generation in range(3, 9):
        talk.subscriptions.offer(encoded(generation, {"a": 1, "b": 1}, {"a": generation}, routes="r1"))
        assert talk.pushes() == []
    talk.ack(slow)
    assert brief(talk.settle()) == ["EDS a@8"]


def test_back_to_what_envoy_had_before_the_push_arrived(talk: Talk) -> None:
    talk.subscriptions.offer(encoded(2, {"a": 1, "b": 1}, {"a": 2}, routes="r1"))
    (push,) = talk.pushes()
    talk.subscriptions.offer(encoded(3, {"a": 1, "b": 1}, routes="r1"))
    talk.ack(push)
    assert brief(talk.settle()) == ["EDS a@1"]


# --- names


def test_names_that_are_added_are_answered_and_no_others(talk: Talk) -> None:
    talk.subscriptions.offer(encoded(2, {"a": 1, "b": 1, "c": 1}, routes="r1"))
    talk.settle()
    talk.ask(Kind.EDS, "a", "b", "c", nonce=talk.subscriptions._of[Kind.EDS].nonce)
    assert brief(talk.settle()) == ["EDS c@1"]


def test_a_name_that_was_given_up_and_comes_back_is_answered(talk: Talk) -> None:
    nonce = talk.subscriptions._of[Kind.EDS].nonce
    talk.ask(Kind.EDS, "a", nonce=nonce)
    assert talk.pushes() == []
    talk.ask(Kind.EDS, "a", "b", nonce=nonce)
    assert brief(talk.settle()) == ["EDS b@1"]


def test_an_answer_may_change_the_names(talk: Talk) -> None:
    talk.subscriptions.offer(encoded(2, {"a": 1, "b": 1, "c": 1}, {"a": 2}, routes="r1"))
    clusters, endpoints = talk.pushes()
    talk.names[Kind.EDS] = frozenset("abc")
    talk.ack(endpoints)
    talk.ack(clusters)
    assert brief(talk.settle()) == ["EDS c@1"]


def test_the_same_names_again_are_not_answered(talk: Talk) -> None:
    talk.ask(Kind.EDS, "a", "b", nonce=talk.subscriptions._of[Kind.EDS].nonce)
    assert talk.pushes() == []


def test_a_subscription_that_begins_anew_is_answered(talk: Talk) -> None:
    talk.ask(Kind.EDS, "a", "b")
    assert brief(talk.settle()) == ["EDS a@1 b@1"]


@pytest.mark.parametrize("nonce", ["", "0", "never sent"])
def test_what_was_said_before_the_last_push_arrived_is_ignored(talk: Talk, nonce: str) -> None:
    talk.subscriptions.offer(encoded(2, {"a": 1, "b": 1}, {"a": 2}, routes="r1"))
    (push,) = talk.pushes()
    for error in (None, "an old complaint"):
        assert talk.subscriptions.receive(Subscribe(Kind.EDS, frozenset(), nonce, error=error)) is None
    assert talk.pushes() == []
    talk.ack(push)
    assert talk.pushes() == []


@pytest.mark.parametrize(
    ("names", "sent"), [(["a"], "CDS a@1"), (["*"], "CDS a@1 b@1"), (["*", "a"], "CDS a@1 b@1")]
)
def test_clusters_may_be_asked_for_by_name(names: list[str], sent: str) -> None:
    talk = Talk(encoded(1, {"a": 1, "b": 1}))
    talk.ask(Kind.CDS, *names)
    assert brief(talk.settle()) == [sent]


# --- refusals


@pytest.mark.parametrize("kind", list(Kind))
def test_what_was_refused_is_not_sent_again_but_the_next_version_is(talk: Talk, kind: Kind) -> None:
    def offer(number: int) -> None:
        numbers: dict[Kind, Any] = dict.fromkeys(Kind, 1) | {kind: number}
        clusters = {"a": numbers[Kind.CDS], "b": 1}
        talk.subscriptions.offer(
            encoded(number, clusters, {"a": numbers[Kind.EDS]}, f"r{numbers[Kind.RDS]}", numbers[Kind.RTDS])
        )

    offer(2)
    bad, *rest = talk.pushes()
    assert bad.kind is kind
    talk.nack(bad)
    for push in rest:  # a changed cluster's endpoints
        talk.ack(push)
    assert talk.pushes() == []
    offer(2)
    assert talk.pushes() == []
    offer(3)
    good, *_ = talk.settle()
    assert good.kind is kind
    offer(3)
    assert talk.pushes() == []


def test_routes_wait_while_clusters_are_refused(talk: Talk) -> None:
    talk.subscriptions.offer(encoded(2, {"a": 1, "b": 1, "x": 1}, routes="r2"))
    (bad,) = talk.pushes()
    talk.nack(bad)
    assert talk.pushes() == []
    talk.subscriptions.offer(encoded(3, {"a": 1, "b": 1, "y": 1}, {"a": 9}, routes="r3"))
    assert brief(talk.settle()) == ["CDS a@1 b@1 y@1", "EDS a@9", "RDS routes@r3"], (
        "x was never there, and is not kept"
    )


def test_endpoints_of_a_cluster_refused_once_come_when_it_is_accepted(talk: Talk) -> None:
    talk.subscriptions.offer(encoded(2, {"a": 2, "b": 1, "x": 1}, routes="r1"))
    bad, endpoints = talk.pushes()
    talk.nack(bad)
    talk.ack(endpoints)
    talk.subscriptions.offer(encoded(3, {"a": 2, "b": 1}, routes="r1"))
    assert brief(talk.settle()) == ["CDS a@2 b@1", "EDS a@1"], "a changes only with this push"


def test_one_bad_assignment_does_not_hold_back_the_others(talk: Talk) -> None:
    talk.subscriptions.offer(encoded(2, {"a": 1, "b": 1}, {"a": 2, "b": 2}, routes="r1"))
    (both,) = talk.pushes()
    talk.nack(both)
    (a,) = talk.pushes()
    assert brief([a]) == ["EDS a@2"]
    talk.nack(a)
    (b,) = talk.pushes()
    assert brief([b]) == ["EDS b@2"]
    talk.ack(b)
    assert talk.pushes() == []
    talk.subscriptions.offer(encoded(3, {"a": 1, "b": 1}, {"a": 3, "b": 3}, routes="r1"))
    assert brief(talk.settle()) == ["EDS a@3 b@3"]


def test_what_nobody_suspects_goes_before_what_is_tried_alone(talk: Talk) -> None:
    talk.subscriptions.offer(encoded(2, {"a": 1, "b": 1, "c": 1}, {"a": 2, "b": 2}, routes="r1"))
    clusters, both = talk.pushes()
    talk.names[Kind.EDS] = frozenset("abc")
    talk.nack(both)
    talk.ack(clusters)
    assert brief(talk.settle()) == ["EDS c@1", "EDS a@2", "EDS b@2"]


# --- an Envoy of every mood

NAMES = ("a", "b", "c", "d")


class AnEnvoy(RuleBasedStateMachine):
    """Answers late, refuses some, changes its mind, reconnects. Content `13` of anything is refused.

    What it works with is what it accepted; an accepted cluster's endpoints are forgotten when the cluster changes.
    """

    @initialize()
    def begin(self) -> None:
        self.generation = 0
        self.offered: Encoded | None = None
        self.works_with: dict[Kind, dict[str, EncodedResource]] = {kind: {} for kind in Kind}
        self.connect()

    @rule()
    def connect(self) -> None:
        self.subscriptions = Subscriptions()
        self.subscribed: set[Kind] = set()
        self.accepted: set[Kind] = set()
        self.in_flight: dict[Kind, Push] = {}
        self.nonces: dict[Kind, str] = {}
        if self.offered is not None:
            self.subscriptions.offer(self.offered)

    @rule(
        numbers=st.dictionaries(st.sampled_from(NAMES), st.integers(1, 3), min_size=1),
        endpoints=st.dictionaries(st.sampled_from(NAMES), st.sampled_from([1, 2, 3, 13]), max_size=2),
        bad=st.sampled_from([None] * 6 + [Kind.CDS, Kind.RDS, Kind.RTDS]),
    )
    def offer(self, numbers: dict[str, int], endpoints: dict[str, int], bad: Kind | None) -> None:
        self.generation += 1
        if bad is Kind.CDS:
            numbers = numbers | {max(numbers): 13}
        routes = [13] if bad is Kind.RDS else sorted(numbers)
        self.offered = encoded(
            self.generation, numbers, endpoints, routes, 13 if bad is Kind.RTDS else self.generation
        )
        self.subscriptions.offer(self.offered)

    def names(self, kind: Kind) -> frozenset[str]:
        every = {Kind.CDS: (), Kind.EDS: self.works_with[Kind.CDS].keys(), Kind.RDS: (ROUTES,), Kind.RTDS: (LAYER,)}
        return frozenset(every[kind])

    def say(self, kind: Kind, error: str | None = None) -> Any:
        said = Subscribe(kind, self.names(kind), self.nonces.get(kind, ""), error=error)
        return self.subscriptions.receive(said)

    @precondition(lambda self: len(self.subscribed) < len(Kind))
    @rule(many=st.integers(1, 4))
    def subscribe(self, many: int) -> None:
        """In Envoy's order, though all may be asked for before anything is answered."""
        for kind in [kind for kind in Kind if kind not in self.subscribed][:many]:
            self.subscribed.add(kind)
            assert self.say(kind) is None

    @rule()
    def stale_words(self) -> None:
        for kind, push in self.in_flight.items():
            assert self.subscriptions.receive(Subscribe(kind, frozenset(), f"not {push.nonce}")) is None

    @rule(many=st.integers(1, 9))
    def read(self, many: int) -> None:
        for _ in range(many):
            if (push := self.subscriptions.next_push()) is None:
                return
            assert self.offered is not None
            assert push.kind in self.subscribed
            assert push.kind not in self.in_flight, "one at a time"
            assert push.resources, "nothing empty"
            assert push.generation == self.offered.generation, "the latest only"
            if push.kind is Kind.CDS:
                wanted = self.offered.of(Kind.CDS).by_name.items()
                assert wanted <= push.resources.items(), "clusters are sent whole"
            self.in_flight[push.kind] = push
            self.take(push)

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def answer_one(self, data: st.DataObject) -> None:
        self.answer(data.draw(st.sampled_from(sorted(self.in_flight)), label="kind"))

    @rule()
    def settle(self) -> None:
        for _ in range(60):
            self.read(9)
            if not self.in_flight:
                return
            for kind in [kind for kind in Kind if kind in self.in_flight]:
                self.answer(kind)
        raise AssertionError("it never ends")

    def answer(self, kind: Kind) -> None:
        push = self.in_flight.pop(kind)
        if any(b"13" in each.body for each in push.resources.values()):
            assert self.say(kind, "thirteen") == Refused(push, "thirteen")
            return
        assert self.say(kind) == Acknowledged(push)
        self.accepted.add(kind)

    def take(self, push: Push) -> None:
        """In the order of the stream, though answers may be held back."""
        self.nonces[push.kind] = push.nonce
        if any(b"13" in each.body for each in push.resources.values()):
            return
        before = self.works_with[push.kind]
        if push.kind is Kind.CDS:
            self.works_with[Kind.CDS] = dict(push.resources)
            endpoints = self.works_with[Kind.EDS]
            for name in {*before, *push.resources}:
                if before.get(name) != push.resources.get(name):
                    endpoints.pop(name, None)
            if Kind.EDS in self.in_flight:  # new names and an answer are one message
                self.answer(Kind.EDS)
            elif Kind.EDS in self.subscribed:
                assert self.say(Kind.EDS) is None
        else:
            names = self.names(push.kind)
            before.update({name: each for name, each in push.resources.items() if name in names})

    @invariant()
    def routes_name_clusters_that_are_there(self) -> None:
        """What strands traffic. What Envoy still had before a reconnection cannot be known."""
        if self.accepted >= {Kind.CDS, Kind.RDS} and self.works_with[Kind.RDS][ROUTES].source["n"] != [13]:
            assert set(self.works_with[Kind.RDS][ROUTES].source["n"]) <= self.works_with[Kind.CDS].keys()

    def teardown(self) -> None:
        """Let everything arrive: Envoy works with what was offered but what it refuses, and then it is quiet."""
        if getattr(self, "offered", None) is None:
            return
        if len(self.subscribed) < len(Kind):
            self.subscribe(4)
        self.settle()
        assert self.subscriptions.next_push() is None
        assert self.offered is not None
        bad_clusters = any(b"13" in each.body for each in self.offered.of(Kind.CDS).by_name.values())
        for kind in Kind:
            for name, wanted in self.offered.of(kind).by_name.items():
                if b"13" in wanted.body or (bad_clusters and kind is not Kind.RTDS):
                    continue
                assert self.works_with[kind].get(name) == wanted, f"{kind.name} {name}"
        routes_are_good = b"13" not in self.offered.of(Kind.RDS).by_name[ROUTES].body
        if not bad_clusters and routes_are_good:
            assert self.works_with[Kind.CDS].keys() == self.offered.of(Kind.CDS).by_name.keys(), (
                "nothing is left over"
            )


AnEnvoy.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestAnEnvoy = AnEnvoy.TestCase

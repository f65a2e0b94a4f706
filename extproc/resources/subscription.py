"""What one Envoy is sent over one ADS stream, as a state machine: state of the world, the latest only.

Of each kind one push is on its way at a time, and the next one waits for Envoy's answer: a nonce then always tells
which push was refused, and a slow Envoy skips what it had no time for. Envoy answers clusters only when they are
warm, so routes wait for that answer, and a cluster leaves only after routes that do without it were taken. The
rejected alternative, everything at once, answers requests with 503 between two messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from extproc.model.xds import (
    NOTHING,
    Acknowledged,
    Encoded,
    EncodedResource,
    Kind,
    Push,
    Refused,
    Subscribe,
    version_of,
)

Named = Mapping[str, EncodedResource]
EVERYTHING = "*"


class Subscription:
    """One kind on one stream.

    `names`: asked for, None before the first request. `sent`: the version last sent of each resource, accepted or
    not: it is not sent again. `refused`: those of them that Envoy refused. `alone`: refused in company, so each is
    tried once more by itself and one bad resource does not hold back the others.
    """

    __slots__ = ("alone", "kind", "names", "nonce", "pending", "refused", "sent")

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.names: frozenset[str] | None = None
        self.nonce = ""
        self.pending: Push | None = None
        self.sent: dict[str, str] = {}
        self.refused: set[str] = set()
        self.alone: set[str] = set()

    def is_stale(self, said: Subscribe) -> bool:
        """Said before the last push arrived: what it says is said again with the answer to that push."""
        if self.pending is None and not said.nonce:
            return False
        return self.nonce not in ("", said.nonce)

    def subscribe(self, said: Subscribe) -> None:
        if not said.nonce:  # begins anew
            self._forget(list(self.sent))
        elif self.names is not None and self.kind is not Kind.CDS:
            self._forget(self.names - said.names)
        self.names = said.names

    def answer(self, said: Subscribe) -> Acknowledged | Refused | None:
        """What became of the push on its way; None where there was none."""
        push = self.pending
        if push is None or said.nonce != push.nonce:
            return None
        self.pending = None
        names = push.resources.keys()
        self.alone -= names
        if said.error is None:
            return Acknowledged(push)
        if len(names) > 1 and self.kind is not Kind.CDS:
            self._forget(names)
            self.alone |= names
        else:
            self.refused |= names
        return Refused(push, said.error)

    def push(self, push: Push) -> Push:
        versions = {name: resource.version for name, resource in push.resources.items()}
        self.sent = versions if self.kind is Kind.CDS else {**self.sent, **versions}
        self.refused = set() if self.kind is Kind.CDS else self.refused - versions.keys()
        self.nonce, self.pending = push.nonce, push
        return push

    def due(self, wanted: Named) -> Named:
        """What to send of `wanted`: all clusters when one changed, else what changed."""
        if self.kind is Kind.CDS:
            return wanted if _versions(wanted) != self.sent else {}
        changed = {name: each for name, each in wanted.items() if self.sent.get(name) != each.version}
        trusted = {name: each for name, each in changed.items() if name not in self.alone}
        return trusted or dict(list(changed.items())[:1])

    def settled(self, wanted: Named) -> bool:
        """Whether Envoy works with all of `wanted`."""
        return self.pending is None and self.refused.isdisjoint(wanted) and not self.due(wanted)

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            self.sent.pop(name, None)
            self.refused.discard(name)
            self.alone.discard(name)


class Subscriptions:
    """All kinds of one stream: `offer` and `receive` as things happen, `next_push` while there is room to send."""

    def __init__(self) -> None:
        self._offered = NOTHING
        self._of = {kind: Subscription(kind) for kind in Kind}
        self._accepted: Named = {}
        """Clusters Envoy works with."""
        self._nonce = 0

    def offer(self, encoded: Encoded) -> None:
        """What Envoy is to know from here on. Nothing is sent before the first one."""
        self._offered = encoded

    def receive(self, said: Subscribe) -> Acknowledged | Refused | None:
        """One request of Envoy, and what it says about the push before it."""
        if said.kind is None or (subscription := self._of[said.kind]).is_stale(said):
            return None
        answer = subscription.answer(said)
        subscription.subscribe(said)
        if said.kind is Kind.CDS and isinstance(answer, Acknowledged):
            self._accepted = answer.push.resources
        return answer

    def next_push(self) -> Push | None:
        """The next thing to send, None while there is none. What is returned counts as sent."""
        if not self._offered.generation:
            return None
        for kind, subscription in self._of.items():
            if subscription.names is None or subscription.pending is not None or self._waits(kind):
                continue
            # Nothing empty is ever sent: no clusters at all would take everything away from Envoy.
            if due := subscription.due(self._wanted(kind)):
                return self._push(subscription, due)
        return None

    def _waits(self, kind: Kind) -> bool:
        """Routes wait for the clusters they name."""
        clusters = self._of[Kind.CDS]
        return kind is Kind.RDS and (clusters.pending is not None or bool(clusters.refused))

    def _wanted(self, kind: Kind) -> Named:
        by_name, names = self._offered.of(kind).by_name, self._of[kind].names or frozenset()
        if kind is not Kind.CDS:
            return {name: by_name[name] for name in sorted(names) if name in by_name}
        if names and EVERYTHING not in names:
            by_name = {name: each for name, each in by_name.items() if name in names}
        return {**self._leaving(by_name), **by_name}

    def _leaving(self, clusters: Named) -> Named:
        """Clusters to keep although they are not wanted any more: Envoy's routes may still name them."""
        gone = {name: each for name, each in self._accepted.items() if name not in clusters}
        routes = self._of[Kind.RDS]
        if not gone or routes.names is None or routes.settled(self._wanted(Kind.RDS)):
            return {}
        return gone

    def _push(self, subscription: Subscription, due: Named) -> Push:
        kind, offered = subscription.kind, self._offered.of(subscription.kind)
        version = offered.version
        if kind is Kind.CDS:
            version = version if due.keys() == offered.by_name.keys() else version_of(_versions(due))
            self._renew_assignments(due)
        self._nonce += 1
        return subscription.push(Push(kind, version, str(self._nonce), self._offered.generation, due))

    def _renew_assignments(self, clusters: Named) -> None:
        """A cluster that is new or changed begins without endpoints, and waits for an assignment to come."""
        before = self._accepted
        for name, cluster in clusters.items():
            if name not in before or before[name].version != cluster.version:
                self._of[Kind.EDS].sent.pop(self._offered.assignments.get(name, name), None)


def _versions(resources: Named) -> dict[str, str]:
    return {name: resource.version for name, resource in resources.items()}

"""What became of requests, counted: the same shape in a process, between processes and for Prometheus.

Called on the decision path, so it only adds to tallies.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from extproc.model.commands import RecordDecision, RecordPass, RecordReject
from extproc.model.names import LATE, LOW_CONFIDENCE, NO_OPINION
from extproc.model.values import Decision
from extproc.tally import BucketsBy, Counts, Labels

MAX_UNSPREAD = 4096
"""Different decisions, and deltas, counted before they are added to the series."""

DECISION_BUCKETS_S = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1)

TOKEN_BUCKETS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)

FAMILIES = (
    "requests",
    "classified",
    "fallbacks",
    "changes",
    "passed",
    "rejections",
    "streams",
    "dropped",
    "trace_spans",
)
"""Of counters. `dropped`: audit records that nobody will find."""


class Counted(Struct, frozen=True):
    """More of one counter. `family` is the tally's name."""

    family: str
    labels: Labels
    count: int


class Observed(Struct, frozen=True):
    """More of one histogram: by bucket, the last one above all bounds, and the sum of what was observed."""

    family: str
    labels: Labels
    counts: tuple[int, ...]
    total: float


class Delta(Struct, frozen=True):
    """What was recorded since the last one; `open` is how many streams are open now."""

    counted: tuple[Counted, ...]
    observed: tuple[Observed, ...]
    open: int


NOT_TOLD = frozenset({NO_OPINION, LOW_CONFIDENCE, LATE})
"""Rules that stand for the default tier."""

EMPTY = Delta((), (), 0)


def of_decision(record: RecordDecision) -> Delta:
    """What it adds."""
    alone = Recorded()
    alone.decided(record)
    return alone.take()


def of_ended(outcome: str) -> Delta:
    """What the end of a stream adds, apart from how many are open."""
    return Delta((Counted("streams", (outcome,), 1),), (), 0)


def _told(decision: Decision) -> str:
    """Whether anybody knew, and why not."""
    return decision.rule if decision.rule in NOT_TOLD else "told"


class Recorded:
    """Used from one thread."""

    def __init__(self) -> None:
        self.counts = {name: Counts() for name in FAMILIES}
        self.buckets = {"granted": BucketsBy(TOKEN_BUCKETS), "decision": BucketsBy(DECISION_BUCKETS_S)}
        self.buckets["decision"].at(())  # shown from the start
        self.open = 0
        self._decided: dict[int, list[Any]] = {}
        self._again: dict[int, list[Any]] = {}

    def decided(self, record: RecordDecision) -> None:
        """Equal requests share one decision, so it is the decision that is counted until somebody asks."""
        known = self._decided.get(id(record.decision))
        if known is not None:
            known[1] += 1
            return
        if len(self._decided) >= MAX_UNSPREAD:
            self.spread()
        self._decided[id(record.decision)] = [record, 1]

    def spread(self) -> None:
        """Add what was decided to the series: before they are read."""
        requests, changes, granted = self.counts["requests"], self.counts["changes"], self.buckets["granted"]
        for record, count in self._decided.values():
            decision = record.decision
            requests.add((record.target.dialect or "none", decision.tier, decision.request_class), count)
            self.counts["classified"].add((decision.source, _told(decision)), count)
            if decision.fallback:
                self.counts["fallbacks"].add((decision.pool or "none", decision.fallback), count)
            for change in decision.changes:
                changes.add((change.field, change.rule), count)
            if decision.max_tokens is not None:
                granted.at((decision.tier,)).observe(decision.max_tokens, count)
        self._decided.clear()
        for delta, count in self._again.values():
            self._add(delta, count)
        self._again.clear()

    def passed(self, record: RecordPass) -> None:
        self.counts["passed"].add((record.reason,))

    def rejected(self, record: RecordReject) -> None:
        self.counts["rejections"].add((record.reason, str(record.status)))

    def dropped(self, records: int) -> None:
        self.counts["dropped"].add((), records)

    def trace_spans(self, result: str, spans: int) -> None:
        if spans:
            self.counts["trace_spans"].add((result,), spans)

    def decision_seconds(self, seconds: float) -> None:
        self.buckets["decision"].at(()).observe(seconds)

    def stream_opened(self) -> None:
        self.open += 1

    def stream_ended(self, outcome: str) -> None:
        self.open -= 1
        self.counts["streams"].add((outcome,))

    def take(self) -> Delta:
        """What was recorded since the last time; it is then recorded no more here."""
        self.spread()
        counted = [Counted(name, *each) for name, tally in self.counts.items() for each in tally.take().items()]
        observed = [
            Observed(name, labels, tuple(seen.counts), seen.total)
            for name, tally in self.buckets.items()
            for labels, seen in tally.take().items()
        ]
        return Delta(tuple(counted), tuple(observed), self.open)

    def merge(self, delta: Delta) -> int:
        """Add what another one recorded; its open streams are not ours. How many series are left out, because they
        are of another version: of a family that is not known here, or with other buckets."""
        return self._add(delta, 1)

    def merge_again(self, delta: Delta) -> int:
        """The same for a value that comes again and again: it is counted until somebody asks. What is left out is
        said at the first one."""
        known = self._again.get(id(delta))
        if known is not None:
            known[1] += 1
            return 0
        if len(self._again) >= MAX_UNSPREAD:
            self.spread()
        self._again[id(delta)] = [delta, 0]
        return self._add(delta, 1)

    def _add(self, delta: Delta, times: int) -> int:
        left_out = 0
        for more in delta.counted:
            tally = self.counts.get(more.family)
            if tally is None:
                left_out += 1
            elif times:
                tally.add(more.labels, more.count * times)
        for seen in delta.observed:
            known = self.buckets.get(seen.family)
            if known is None or len(seen.counts) != len(known.bounds) + 1:
                left_out += 1
            elif times:
                known.at(seen.labels).add([count * times for count in seen.counts], seen.total * times)
        return left_out

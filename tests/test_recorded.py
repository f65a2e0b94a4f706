"""What is recorded adds up, however often it is taken, and wherever it is merged."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.model.commands import RecordDecision, RecordPass, RecordReject
from extproc.model.names import Field, Tier
from extproc.recorded import (
    DECISION_BUCKETS_S,
    MAX_UNSPREAD,
    TOKEN_BUCKETS,
    Counted,
    Delta,
    Observed,
    Recorded,
    of_decision,
    of_ended,
)
from extproc.tally import MAX_VALUES
from tests.decisions import decided

State = tuple[dict[str, dict[tuple[str, ...], int]], dict[str, dict[tuple[str, ...], tuple[list[int], float]]]]


def decision(*changes: Field, tier: Tier = Tier.STRICT, max_tokens: int | None = 256) -> RecordDecision:
    return decided(*((field, "rule") for field in changes), tier=tier, max_tokens=max_tokens)


def state(recorded: Recorded) -> State:
    """All of it but empty series."""
    recorded.spread()
    counts = {name: dict(tally.items()) for name, tally in recorded.counts.items()}
    buckets = {
        name: {labels: (seen.counts, seen.total) for labels, seen in tally.items() if any(seen.counts)}
        for name, tally in recorded.buckets.items()
    }
    return counts, buckets


DECISIONS = [
    decision(Field.TEMPERATURE, Field.TOP_P),
    decision(tier=Tier.CREATIVE, max_tokens=70_000),
    decision(Field.TEMPERATURE, max_tokens=None),
]

Step = Callable[[Recorded], None]

STEPS: list[Step] = [
    *[lambda recorded, each=each: recorded.decided(each) for each in DECISIONS],  # type: ignore[misc]
    lambda recorded: recorded.passed(RecordPass("unknown_path")),
    lambda recorded: recorded.rejected(RecordReject("no_json", 400)),
    lambda recorded: recorded.decision_seconds(0.25),
    lambda recorded: recorded.decision_seconds(0.0000305175781250),  # 2^-15: sums are exact
    lambda recorded: recorded.stream_opened(),
    lambda recorded: recorded.stream_ended("completed"),
    lambda recorded: recorded.dropped(3),
]
TAKE = len(STEPS)


@given(st.lists(st.integers(0, TAKE)))
def test_deltas_sum_to_what_was_recorded(steps: list[int]) -> None:
    plain, taken, merged = Recorded(), Recorded(), Recorded()
    for step in [*steps, TAKE]:
        if step == TAKE:
            assert merged.merge(taken.take()) == 0
            continue
        STEPS[step](plain)
        STEPS[step](taken)
    assert state(merged) == state(plain)
    assert state(taken) == state(Recorded())
    assert taken.open == plain.open
    assert merged.open == 0


@given(st.lists(st.integers(0, TAKE - 1)), st.lists(st.integers(0, TAKE - 1)))
def test_what_was_not_taken_may_be_given_back(first: list[int], second: list[int]) -> None:
    plain, given_back = Recorded(), Recorded()
    for step in (*first, *second):
        STEPS[step](plain)
    for step in first:
        STEPS[step](given_back)
    delta = given_back.take()
    for step in second:
        STEPS[step](given_back)
    given_back.merge(delta)
    assert state(given_back) == state(plain)
    assert given_back.open == plain.open


@given(st.lists(st.integers(0, TAKE - 1), max_size=6), st.lists(st.booleans()))
def test_what_comes_again_counts_as_often(steps: list[int], asked: list[bool]) -> None:
    """Also where somebody asks in between."""
    source, one_by_one, again = Recorded(), Recorded(), Recorded()
    for step in steps:
        STEPS[step](source)
    delta = source.take()
    for ask in asked:
        one_by_one.merge(delta)
        again.merge_again(delta)
        if ask:
            again.spread()
    assert state(one_by_one) == state(again)


def test_different_deltas_hold_no_memory() -> None:
    recorded = Recorded()
    for _ in range(2 * MAX_UNSPREAD):
        recorded.merge_again(of_decision(DECISIONS[0]))
    assert len(recorded._again) <= MAX_UNSPREAD
    recorded.spread()
    assert sum(count for _, count in recorded.counts["requests"].items()) == 2 * MAX_UNSPREAD


@pytest.mark.parametrize("record", DECISIONS)
def test_what_one_decision_adds(record: RecordDecision) -> None:
    plain, merged = Recorded(), Recorded()
    plain.decided(record)
    merged.merge(of_decision(record))
    assert state(plain) == state(merged)


def test_what_the_end_of_a_stream_adds() -> None:
    plain, merged = Recorded(), Recorded()
    plain.stream_ended("completed")
    merged.merge(of_ended("completed"))
    assert state(plain) == state(merged)


def test_a_delta_says_how_many_streams_are_open() -> None:
    recorded = Recorded()
    recorded.stream_opened()
    recorded.stream_opened()
    recorded.stream_ended("completed")
    assert [recorded.take().open, recorded.take().open] == [1, 1]


def test_equal_decisions_are_counted_together_and_no_memory_is_held() -> None:
    recorded = Recorded()
    for _ in range(3):
        for _ in range(MAX_UNSPREAD):
            recorded.decided(decision(max_tokens=None))
    assert len(recorded._decided) <= MAX_UNSPREAD
    recorded.spread()
    assert sum(count for _, count in recorded.counts["requests"].items()) == 3 * MAX_UNSPREAD


def test_too_many_values_are_other_after_a_merge_too() -> None:
    merged = Recorded()
    for number in range(MAX_VALUES + 50):
        merged.merge(Delta((Counted("passed", (f"reason-{number}",), 2),), (), 0))
    found = dict(merged.counts["passed"].items())
    assert len(found) == MAX_VALUES + 1
    assert found[("other",)] == 100


FEW, RIGHT, MANY = ((1,) * buckets for buckets in (2, len(DECISION_BUCKETS_S) + 1, 40))


@pytest.mark.parametrize(
    "strange",
    [
        Counted("unheard_of", ("x",), 1),
        Observed("unheard_of", (), RIGHT, 1.0),
        Observed("decision", (), FEW, 1.0),
        Observed("decision", (), MANY, 1.0),
        Observed("decision", (), (), 1.0),
        Observed("granted", ("strict",), RIGHT, 1.0),
    ],
)
def test_what_another_version_says_is_left_out_and_the_rest_counts(strange: Counted | Observed) -> None:
    assert len(RIGHT) != len(TOKEN_BUCKETS) + 1
    counted, observed = (Counted("passed", ("why",), 1),), (Observed("decision", (), RIGHT, 2.0),)
    if isinstance(strange, Counted):
        delta = Delta((strange, *counted), observed, 0)
    else:
        delta = Delta(counted, (strange, *observed), 0)
    merged, expected = Recorded(), Recorded()
    assert merged.merge(delta) == 1
    assert expected.merge(Delta(counted, observed, 0)) == 0
    assert state(merged) == state(expected)


def test_a_delta_is_not_changed_by_what_is_recorded_later() -> None:
    recorded = Recorded()
    recorded.passed(RecordPass("a"))
    recorded.decision_seconds(1)
    delta = recorded.take()
    before = msgspec.json.encode(delta)
    recorded.passed(RecordPass("a"))
    recorded.decision_seconds(1)
    assert msgspec.json.encode(delta) == before

"""Rates by tier and class, and the last requests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extproc.loops.recent import LAST, MAX_KINDS, RATE_WINDOW_S, Recent
from extproc.model.telemetry import AccessSample
from extproc.windows.outcome import Outcome


def sample(tier: str = "strict", request_class: str = "normal", status: int = 200) -> AccessSample:
    return AccessSample(
        upstream="10.0.0.1:8000",
        cluster="c",
        route="r",
        status=status,
        flags=(),
        first_byte_s=0.1,
        total_s=0.2,
        tier=tier,
        scenario="legal",
        request_class=request_class,
        tenant="shop",
        params="default@abc",
    )


def test_rates_are_by_tier_and_class() -> None:
    recent = Recent(str.upper)
    recent.finished([sample(), sample(), sample("creative")], now=100.0, wall=0.0)
    assert recent.rates(now=100.5) == {("creative", "normal"): 0.1, ("strict", "normal"): 0.2}
    assert recent.rates(now=100.0 + 2 * RATE_WINDOW_S) == {("creative", "normal"): 0.0, ("strict", "normal"): 0.0}


@given(st.lists(st.floats(min_value=0, max_value=9.9), max_size=30))
def test_what_is_within_the_window_is_counted_whole(at: list[float]) -> None:
    recent = Recent(str)
    for now in sorted(at):
        recent.finished([sample()], now=now, wall=0.0)
    assert sum(recent.rates(now=9.9).values()) * RATE_WINDOW_S == len(at)


def test_the_last_come_first_and_are_few() -> None:
    recent = Recent(str.upper)
    for wall in range(LAST + 5):
        recent.finished([sample(status=503 if wall % 2 else 200)], now=1.0, wall=float(wall))
    last = recent.last()
    assert [each.at for each in last] == [float(at) for at in range(LAST + 4, 4, -1)]
    assert (last[0].pool, last[0].outcome) == ("C", Outcome.OK)


def test_kinds_are_bounded() -> None:
    recent = Recent(str)
    recent.finished([sample(f"tier-{number}") for number in range(10 * MAX_KINDS)], now=1.0, wall=1.0)
    assert len(recent.rates(now=1.0)) == MAX_KINDS

"""Load with hysteresis, and the switch."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from extproc.protect import degrade
from extproc.protect.settings import DegradeConfig

CONFIG = DegradeConfig(mode="auto", enter_load=0.8, leave_load=0.7, temperature=0.7, max_tokens=128)


@pytest.mark.parametrize(
    ("given", "load"),
    [
        ((None, None, None), None),
        ((0.5, None, None), 0.5),
        ((0.5, 0.9, 0.1), 0.9),
        ((None, 0.0, None), 0.0),
        ((0.2, 0.3, 1.7), 1.7),
    ],
)
def test_the_load_of_an_endpoint_is_the_highest_that_is_known(
    given: tuple[float | None, float | None, float | None], load: float | None
) -> None:
    assert degrade.load(*given) == load


def test_the_load_of_a_pool_is_the_mean_of_what_is_known() -> None:
    assert degrade.pool_load([0.2, None, 0.8]) == pytest.approx(0.5)
    assert degrade.pool_load([None]) is None
    assert degrade.pool_load([]) is None


@pytest.mark.parametrize(
    ("was", "load", "now"),
    [
        (False, 0.8, False),
        (False, 0.81, True),
        (True, 0.75, True),
        (False, 0.75, False),
        (True, 0.7, True),
        (True, 0.69, False),
        (True, None, False),
        (False, None, False),
    ],
)
def test_hysteresis(was: bool, load: float | None, now: bool) -> None:
    assert degrade.degraded(was, load, CONFIG) is now


@pytest.mark.parametrize(("mode", "now"), [("on", True), ("off", False)])
@pytest.mark.parametrize("load", [None, 0.0, 0.99])
def test_the_switch_overrules_the_load(mode: str, load: float | None, now: bool) -> None:
    config = CONFIG.model_copy(update={"mode": mode})
    assert degrade.degraded(not now, load, config) is now


class DegradeMachine(RuleBasedStateMachine):
    """It changes only by crossing a threshold: between the two the state before is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.state = False

    @rule(load=st.floats(0, 2))
    def look(self, load: float) -> None:
        before = self.state
        self.state = degrade.degraded(before, load, CONFIG)
        if self.state and not before:
            assert load > CONFIG.enter_load
        if before and not self.state:
            assert load < CONFIG.leave_load

    @rule(load=st.floats(0.7, 0.8))
    def between(self, load: float) -> None:
        assert degrade.degraded(self.state, load, CONFIG) is self.state


TestDegradeMachine = DegradeMachine.TestCase
TestDegradeMachine.settings = settings(max_examples=50, deadline=None)

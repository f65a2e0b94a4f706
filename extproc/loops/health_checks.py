"""Checks every endpoint each second; two failures in a row make it unhealthy, one success healthy again.

A new endpoint counts as healthy until it was checked: the rejected alternative, unhealthy until proven, takes
all of a pool out of the traffic whenever this process starts. One failure is not enough, since a busy engine may
answer one check late, and a check that hangs has failed.
"""

from __future__ import annotations

import asyncio
import logging
import random as random_numbers
from collections.abc import Awaitable, Callable, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from extproc.engines.failures import Cause, Failure
from extproc.loops.rota import Random, Rota, Sleep
from extproc.loops.tasks import Clock, monotonic
from extproc.model.names import Engine
from extproc.model.topology import Endpoint

logger = logging.getLogger("extproc.loops.health_checks")

INTERVAL_S = 1.0
TIMEOUT_S = 0.8
FAILURES = 2
SLOTS = 64


class Checked(Struct, frozen=True):
    """An endpoint to check. `key` is unique; two may name one address, as members of two pools do."""

    key: str
    engine: Engine
    endpoint: Endpoint


class Condition(Struct, frozen=True):
    """What the checks say of an endpoint; times in the clock's seconds, None = never.

    `failed_in_row` and `failure` are of the present row of failures, `checks` and `failures` of all its life.
    """

    healthy: bool = True
    checked_at: float | None = None
    changed_at: float | None = None
    checks: int = 0
    failures: int = 0
    failed_in_row: int = 0
    failure: Failure | None = None

    def age_s(self, *, now: float) -> float | None:
        """Seconds since the last check; None before the first. Not negative when the clock went back."""
        return None if self.checked_at is None else max(0.0, now - self.checked_at)


NEW = Condition()

Check = Callable[[Checked], Awaitable[Failure | None]]
OnChange = Callable[[Checked, bool], None]


def judged(condition: Condition, failure: Failure | None, *, threshold: int, now: float) -> Condition:
    """The condition after one more check, `failure` None = it passed."""
    failed_in_row = condition.failed_in_row + 1 if failure else 0
    healthy = failed_in_row < threshold if condition.healthy else failure is None
    return replace(
        condition,
        healthy=healthy,
        checked_at=now,
        changed_at=now if healthy != condition.healthy else condition.changed_at,
        checks=condition.checks + 1,
        failures=condition.failures + bool(failure),
        failed_in_row=failed_in_row,
        failure=failure,
    )


class HealthChecks:
    """`check` may hang or raise; `on_change` hears of each change of `healthy`. Used by one event loop."""

    def __init__(
        self,
        *,
        check: Check,
        on_change: OnChange,
        interval_s: float = INTERVAL_S,
        timeout_s: float = TIMEOUT_S,
        failures: int = FAILURES,
        slots: int = SLOTS,
        clock: Clock = monotonic,
        sleep: Sleep = asyncio.sleep,
        random: Random = random_numbers.random,
    ) -> None:
        self._check = check
        self._on_change = on_change
        self._timeout_s = min(timeout_s, interval_s)
        self._threshold = failures
        self._clock = clock
        self._conditions: dict[str, Condition] = {}
        self._rota: Rota[Checked] = Rota(
            visit=self._visit, interval_s=interval_s, slots=slots, clock=clock, sleep=sleep, random=random
        )

    def set_endpoints(self, endpoints: Iterable[Checked]) -> None:
        """From here on check these. One that left or changed is new when it comes again; nobody is called."""
        members = {checked.key: checked for checked in endpoints}
        for key in self._rota.assign(members):
            self._conditions.pop(key, None)
        for key in members:
            self._conditions.setdefault(key, NEW)

    def pace(self, *, interval_s: float, timeout_s: float, failures: int, slots: int = SLOTS) -> None:
        """From here on check so often, and judge by so many failures; conditions stay."""
        self._timeout_s = min(timeout_s, interval_s)
        self._threshold = failures
        self._rota.pace(interval_s=interval_s, slots=slots)

    async def run(self) -> None:
        """Check until cancelled."""
        await self._rota.run()

    def condition(self, key: str) -> Condition:
        """What is known of an endpoint; one that is not set is new, and so healthy."""
        return self._conditions.get(key, NEW)

    def conditions(self) -> Mapping[str, Condition]:
        return dict(self._conditions)

    async def _visit(self, key: str, checked: Checked) -> bool:
        before, failure = self._conditions[key], await self._checked(checked)
        after = judged(before, failure, threshold=self._threshold, now=self._clock())
        self._conditions[key] = after
        if after.healthy != before.healthy:
            logger.warning("%s is %s", key, "healthy" if after.healthy else f"unhealthy: {failure}")
            self._on_change(checked, after.healthy)
        return failure is None

    async def _checked(self, checked: Checked) -> Failure | None:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._check(checked)
        except TimeoutError:
            return Failure(Cause.TIMEOUT, f"{self._timeout_s:g} s")
        except Exception as error:
            logger.exception("%s not checked: a bug", checked.key)
            return Failure(Cause.INTERNAL, type(error).__name__)

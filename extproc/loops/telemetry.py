"""Scrapes every target at its interval and keeps the last good reading of each.

A failed look changes nothing but the count of failures: whether a sample is too old is for its reader to say.
An exporter that goes on answering with the same page is found by `changed_at`, and an engine that is merely idle
is told from it by `page_changed_at`: the page of a living process moves (CPU time, collections) where its load
does not.
"""

from __future__ import annotations

import asyncio
import logging
import random as random_numbers
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from extproc.engines.failures import Cause, Failure
from extproc.engines.reading import Content, Reading, Source, read
from extproc.loops.rota import Random, Rota, Sleep
from extproc.loops.tasks import Clock, monotonic
from extproc.model.telemetry import EngineSample

logger = logging.getLogger("extproc.loops.telemetry")

INTERVAL_S = 5.0
TIMEOUT_S = 3.0
SLOTS = 32
"""Looks at once: a page is fetched in milliseconds, so that more would only make each of them slower."""


class Target(Struct, frozen=True):
    """One thing to scrape. `key` is unique and what tables, metrics and logs show; two may share an address.

    `url` is what the fetcher of this source understands. `label` names the label that joins a shared source's
    samples to endpoints.
    """

    key: str
    source: Source
    url: str
    label: str | None = None


class Look(Struct, frozen=True):
    """What is known of a target; times in the clock's seconds, None = never.

    `samples` is the last good reading (see `engines.reading`), `taken_at` its time, `changed_at` when the part
    that was read last differed from the one before, `page_changed_at` when anything of the page did.
    `failures` counts since the target came; `failed_in_row` and `failure` are of the present row of failures.
    """

    samples: Mapping[str, EngineSample] = {}
    taken_at: float | None = None
    changed_at: float | None = None
    page_changed_at: float | None = None
    duration_s: float | None = None
    looks: int = 0
    failures: Mapping[Cause, int] = {}
    failed_in_row: int = 0
    failure: Failure | None = None

    def age_s(self, *, now: float) -> float | None:
        """Seconds since the last good sample; None where there is none. Not negative when the clock went back."""
        return None if self.taken_at is None else max(0.0, now - self.taken_at)

    def unchanged_s(self, *, now: float) -> float | None:
        """For how long the whole answer has been the same, up to the last good one; None where there is none."""
        if self.page_changed_at is None or self.taken_at is None:
            return None
        return max(0.0, min(now, self.taken_at) - self.page_changed_at)


class Observer(Protocol):
    def scraped(self, target: Target, duration_s: float, failure: Failure | None) -> None:
        """Called after every look; `failure` None = a good one."""


Fetch = Callable[[Target], Awaitable[Content | Failure]]

UNKNOWN = Look()


class _Kept(Struct):
    look: Look = UNKNOWN
    reading: Reading | None = None
    page: int | None = None
    """A hash: pages of a thousand engines are 50 MB."""


class Scraper:
    """`fetch` brings a page, or points; it may hang or raise. Used by one event loop."""

    def __init__(
        self,
        *,
        fetch: Fetch,
        observer: Observer | None = None,
        interval_s: float = INTERVAL_S,
        timeout_s: float = TIMEOUT_S,
        slots: int = SLOTS,
        clock: Clock = monotonic,
        sleep: Sleep = asyncio.sleep,
        random: Random = random_numbers.random,
    ) -> None:
        self._fetch = fetch
        self._observer = observer
        self._timeout_s = min(timeout_s, interval_s)
        self._clock = clock
        self._kept: dict[str, _Kept] = {}
        self._rota: Rota[Target] = Rota(
            visit=self._visit, interval_s=interval_s, slots=slots, clock=clock, sleep=sleep, random=random
        )

    def set_targets(self, targets: Iterable[Target]) -> None:
        """From here on scrape these. What was known of a target that left or changed is forgotten."""
        members = {target.key: target for target in targets}
        for key in self._rota.assign(members):
            self._kept.pop(key, None)
        for key in members:
            self._kept.setdefault(key, _Kept())

    def pace(self, *, interval_s: float, timeout_s: float, slots: int) -> None:
        """From here on look so often; what is known stays."""
        self._timeout_s = min(timeout_s, interval_s)
        self._rota.pace(interval_s=interval_s, slots=slots)

    async def run(self) -> None:
        """Scrape until cancelled."""
        await self._rota.run()

    def look(self, key: str) -> Look:
        """What is known of a target; a target that is not set is unknown."""
        kept = self._kept.get(key)
        return kept.look if kept else UNKNOWN

    def looks(self) -> Mapping[str, Look]:
        return {key: kept.look for key, kept in self._kept.items()}

    async def _visit(self, key: str, target: Target) -> bool:
        """One look, which a cancellation breaks off when the target leaves."""
        kept, begun = self._kept[key], self._clock()
        before, content = kept.look.failure, await self._fetched(target)
        now = self._clock()
        failure = content if isinstance(content, Failure) else _take(kept, target, content, now)
        _tell(target, before, failure)
        if failure is not None:
            kept.look = _failed(kept.look, failure)
        duration_s = max(0.0, now - begun)
        kept.look = replace(kept.look, duration_s=duration_s, looks=kept.look.looks + 1)
        if self._observer is not None:
            self._observer.scraped(target, duration_s, failure)
        return failure is None

    async def _fetched(self, target: Target) -> Content | Failure:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._fetch(target)
        except TimeoutError:
            return Failure(Cause.TIMEOUT, f"{self._timeout_s:g} s")
        except Exception as error:
            logger.exception("%s not scraped: a bug", target.key)
            return Failure(Cause.INTERNAL, type(error).__name__)


def _take(kept: _Kept, target: Target, content: Content, now: float) -> Failure | None:
    """Keep what the content tells; or why it tells nothing, and all stays."""
    counters = kept.reading.counters if kept.reading else None
    try:
        found = read(target.source, content, counters, label=target.label, now=now)
    except Exception as error:
        logger.exception("%s not read: a bug", target.key)
        return Failure(Cause.INTERNAL, type(error).__name__)
    if isinstance(found, Failure):
        return found
    _keep(kept, found, _mark(content), now)
    return None


def _mark(content: Content) -> int:
    return hash(content) if isinstance(content, bytes) else hash(repr(content))


def _keep(kept: _Kept, found: Reading, page: int, now: float) -> None:
    same = kept.reading is not None and kept.reading.kept == found.kept
    kept.look = replace(
        kept.look,
        samples=found.samples,
        taken_at=now,
        changed_at=kept.look.changed_at if same else now,
        page_changed_at=kept.look.page_changed_at if kept.page == page else now,
        failed_in_row=0,
        failure=None,
    )
    kept.reading, kept.page = found, page


def _failed(look: Look, failure: Failure) -> Look:
    counts = {**look.failures, failure.cause: look.failures.get(failure.cause, 0) + 1}
    return replace(look, failures=counts, failed_in_row=look.failed_in_row + 1, failure=failure)


def _tell(target: Target, before: Failure | None, failure: Failure | None) -> None:
    """One line when a row of failures begins, changes its cause or ends."""
    if failure is not None and (before is None or before.cause != failure.cause):
        logger.warning("%s not scraped: %s", target.key, failure)
    elif failure is None and before is not None:
        logger.info("%s scraped again", target.key)

"""The history of parameter sets: which one is active, which one to go back to, which ones are refused.

The history says what is active, not the config file: a set that the file names for the first time becomes a
candidate and is activated by itself, once. A set that was rolled back stays refused whatever is reloaded or
restarted, until somebody activates it by name. Times are seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

MAX_SETS = 50
"""Kept with their content. The active one, the last good one, the one on offer and refused ones stay longest."""

MAX_RECORDS = 200

MAX_BARRED = 10_000
"""Refused sets of which no more than the version is kept, 150 kB. When they are so many, none is forgotten: no new
set comes by itself any more."""

FULL = "too many sets were refused"


class Standing(StrEnum):
    CANDIDATE = "candidate"  # waits for activation
    ACTIVE = "active"
    RETIRED = "retired"  # was active, another one followed
    REFUSED = "refused"  # was rolled back


class Action(StrEnum):
    OFFERED = "offered"
    BLOCKED = "blocked"  # not activated: parameters may not change at the moment
    ACTIVATED = "activated"
    PROVED = "proved"
    ROLLED_BACK = "rolled_back"
    PINNED = "pinned"
    UNPINNED = "unpinned"


class ParameterVersion(Struct, frozen=True, kw_only=True):
    """One set. `content`: all that makes it, as JSON has it. `good_at`: proved itself then, 0 = not yet."""

    version: str
    name: str
    content: Mapping[str, Any]
    standing: Standing
    seen_at: float
    activated_at: float = 0.0
    good_at: float = 0.0
    reason: str = ""

    @property
    def label(self) -> str:
        """As decisions carry it."""
        return f"{self.name}@{self.version}"


class Record(Struct, frozen=True, kw_only=True):
    """What was done to `version`, by whom (`config`, `protection`, an operator), and which was active before."""

    at: float
    action: Action
    version: str
    before: str = ""
    by: str
    reason: str
    evidence: Mapping[str, float | int | str | None] = {}


class History(Struct, frozen=True, kw_only=True):
    """`offered`: the version the config file names. `last_good` "" = none has proved itself yet. `barred`: refused
    ones whose content is not kept any more, oldest first."""

    active: str = ""
    last_good: str = ""
    offered: str = ""
    pinned: bool = False
    versions: tuple[ParameterVersion, ...] = ()
    records: tuple[Record, ...] = ()
    barred: tuple[str, ...] = ()

    def of(self, version: str) -> ParameterVersion | None:
        return next((each for each in self.versions if each.version == version), None)

    @property
    def current(self) -> ParameterVersion | None:
        return self.of(self.active)


class Offer(Struct, frozen=True):
    """A set as the config file has it."""

    version: str
    name: str
    content: Mapping[str, Any]


def offered(history: History, offer: Offer, *, now: float, blocked: str = "") -> History:
    """The file names this set. Only another one than before is news; `blocked` = why none may be activated now.

    A candidate that was held back is activated by the first offer that finds nothing in its way.
    """
    return _pruned(_offered(history, offer, now=now, blocked=blocked))


def _offered(history: History, offer: Offer, *, now: float, blocked: str) -> History:
    if offer.version in history.barred:
        history = _remembered(history, offer, now)
    known = history.of(offer.version)
    first = not history.active
    if known is None:
        history = _with_new(history, offer, Standing.CANDIDATE, now)
        history = _recorded(
            history,
            Record(at=now, action=Action.OFFERED, version=offer.version, by="config", reason="named by the config"),
        )
    elif offer.version == history.active:
        return _renamed(replace(history, offered=offer.version), offer)
    elif known.standing is Standing.REFUSED:
        return replace(history, offered=offer.version)
    elif offer.version == history.offered and known.standing is not Standing.CANDIDATE:
        return history  # somebody chose another one since
    waiting = "pinned" if history.pinned else FULL if len(history.barred) >= MAX_BARRED else blocked
    history = replace(history, offered=offer.version)
    if waiting and not first:
        return _held(history, offer.version, waiting, now)
    return activated(history, offer.version, by="config", reason="named by the config", now=now)


def _remembered(history: History, offer: Offer, now: float) -> History:
    """A refused set whose content was gone is named again: with its content an operator can forgive it."""
    barred = tuple(version for version in history.barred if version != offer.version)
    known = _with_new(history, offer, Standing.REFUSED, now, reason="rolled back before")
    return replace(known, barred=barred)


def _with_new(history: History, offer: Offer, standing: Standing, now: float, reason: str = "") -> History:
    added = ParameterVersion(
        version=offer.version,
        name=offer.name,
        content=offer.content,
        standing=standing,
        seen_at=now,
        reason=reason,
    )
    return replace(history, versions=(*history.versions, added))


def _renamed(history: History, offer: Offer) -> History:
    """The same content under another name is the same set."""
    known = history.of(offer.version)
    assert known is not None, "the active one is known"
    return history if known.name == offer.name else _with(history, replace(known, name=offer.name))


def _held(history: History, version: str, why: str, now: float) -> History:
    """Said once, however often it is offered."""
    last = history.records[-1] if history.records else None
    if last is not None and (last.action, last.version, last.reason) == (Action.BLOCKED, version, why):
        return history
    return _recorded(history, Record(at=now, action=Action.BLOCKED, version=version, by="protection", reason=why))


def activated(history: History, version: str, *, by: str, reason: str, now: float) -> History:
    """Make it the active one; refused ones are forgiven. KeyError where it is not known."""
    chosen = history.of(version)
    if chosen is None:
        raise KeyError(version)
    if version == history.active:
        return history
    before = history.current
    if before is not None:
        history = _with(history, replace(before, standing=Standing.RETIRED))
    history = _recorded(history, Record(at=now, action=Action.ACTIVATED, version=version, by=by, reason=reason))
    chosen = replace(chosen, standing=Standing.ACTIVE, activated_at=now, reason="")
    return _with(replace(history, active=version), chosen)


def proved(history: History, *, by: str, reason: str, now: float) -> History:
    """The active set did well for long enough: it is what a later one would be rolled back to."""
    current = history.current
    if current is None or (current.good_at and history.last_good == current.version):
        return history
    history = _recorded(
        history, Record(at=now, action=Action.PROVED, version=current.version, by=by, reason=reason)
    )
    return _with(replace(history, last_good=current.version), replace(current, good_at=now))


def can_roll_back(history: History) -> bool:
    """There is another one to go back to, and nobody pinned this one. After a rollback the last good one is active,
    so that there is never a second."""
    target = history.of(history.last_good)
    return not history.pinned and target is not None and history.last_good != history.active


def rolled_back(
    history: History, *, reason: str, evidence: Mapping[str, float | int | str | None], now: float
) -> History:
    """Back to the last good one, and the active one is refused from now on; unchanged where there is none."""
    bad, good = history.current, history.of(history.last_good)
    if bad is None or good is None or not can_roll_back(history):
        return history
    history = _recorded(
        history,
        Record(
            at=now,
            action=Action.ROLLED_BACK,
            version=good.version,
            by="protection",
            reason=reason,
            evidence=evidence,
        ),
    )
    history = _with(history, replace(bad, standing=Standing.REFUSED, reason=reason))
    history = _with(history, replace(good, standing=Standing.ACTIVE, activated_at=now))
    return replace(history, active=good.version)


def pinned(history: History, *, pin: bool, by: str, now: float) -> History:
    """A pinned set is neither rolled back nor followed by another one."""
    if history.pinned is pin:
        return history
    action = Action.PINNED if pin else Action.UNPINNED
    return replace(
        _recorded(history, Record(at=now, action=action, version=history.active, by=by, reason="")), pinned=pin
    )


def problems(history: History) -> tuple[str, ...]:
    """Broken invariants; none in a history that only these functions made."""
    active = [each.version for each in history.versions if each.standing is Standing.ACTIVE]
    found = []
    if history.active and active != [history.active]:
        found.append(f"active is {history.active}, standing so: {active}")
    if history.last_good and history.of(history.last_good) is None:
        found.append(f"last good {history.last_good} is not kept")
    if history.current is not None and history.current.standing is Standing.REFUSED:
        found.append("the active one is refused")
    versions = [each.version for each in history.versions]
    if len({*versions, *history.barred}) < len(versions) + len(history.barred):
        found.append("a version stands twice")
    return tuple(found)


def _with(history: History, changed: ParameterVersion) -> History:
    return replace(
        history,
        versions=tuple(changed if each.version == changed.version else each for each in history.versions),
    )


def _recorded(history: History, record: Record) -> History:
    return replace(history, records=(*history.records, replace(record, before=history.active))[-MAX_RECORDS:])


def _pruned(history: History) -> History:
    """The oldest retired ones make room, then the oldest refused ones, of which the version is kept: or they could
    come back."""
    excess = len(history.versions) - MAX_SETS
    if excess <= 0:
        return history
    kept = {history.active, history.last_good, history.offered}
    retired = [each.version for each in history.versions if each.standing is not Standing.REFUSED]
    refused = [each.version for each in history.versions if each.standing is Standing.REFUSED]
    gone = [version for version in (*retired, *refused) if version not in kept][:excess]
    return replace(
        history,
        versions=tuple(each for each in history.versions if each.version not in gone),
        barred=(*history.barred, *(version for version in gone if version in refused)),
    )

"""Keeps the history of parameter sets: offers of the config, rollbacks, an operator's word; and its file.

What changes is written before it is in force for anybody. A disk that is full does not stop it: the sidecar goes on
with what it knows, says so, and writes again when the disk takes it. Used from several threads.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

import msgspec

from extproc.errors import ConfigError
from extproc.model.protection import Incident, Kind, Severity
from extproc.parameters import ParameterSet
from extproc.protect import history as sets
from extproc.protect.history import History, Offer
from extproc.settings import Settings, parsed

log = logging.getLogger("extproc.loops.parameter_history")

RETRY_S = 10.0
"""Between two tries to write what the disk did not take: up to a megabyte each."""

SECTIONS = ("inference_params", "scenarios", "classify")


class UnknownVersion(KeyError):
    """No set of that version is kept."""


class ParameterHistory:
    """`save` writes the file and says whether it could; `wall` tells seconds since the epoch."""

    def __init__(self, kept: bytes | None, *, save: Callable[[bytes], bool], wall: Callable[[], float]) -> None:
        self._lock = threading.Lock()
        self._save = save
        self._wall = wall
        self._history = _decoded(kept)
        self._blocked = ""
        self._revision = 0
        self.unsaved = False
        self._tried_at: float | None = None

    @property
    def history(self) -> History:
        return self._history

    @property
    def label(self) -> str:
        current = self._history.current
        return "" if current is None else current.label

    @property
    def last_good_label(self) -> str:
        """ "" = none has proved itself yet."""
        good = self._history.of(self._history.last_good)
        return "" if good is None else good.label

    @property
    def can_roll_back(self) -> bool:
        return sets.can_roll_back(self._history)

    @property
    def revision(self) -> int:
        """Grows when another set may be in force although the config is the same."""
        return self._revision

    def effective(self, settings: Settings) -> Settings:
        """The settings with the active set in place of their own, which is taken as an offer."""
        own = settings.parameters()
        offer = Offer(own.version(), own.name, own.model_dump(mode="json", exclude={"name"}))
        with self._lock:
            self._become(sets.offered(self._history, offer, now=self._wall(), blocked=self._blocked))
            current = self._history.current
        if current is None or current.version == own.version():
            return settings
        active = _rebuilt(current.name, current.content)
        if active is None or active.version() != current.version:
            return self._unusable(settings, current.label, own.version())
        return settings.model_copy(
            update={
                "parameter_set": active.name,
                **{section: getattr(active, section) for section in SECTIONS},
            }
        )

    def _unusable(self, settings: Settings, label: str, own: str) -> Settings:
        """Written by another version of this program: the config's set is the only one there is."""
        log.error("the active parameter set %s cannot be read any more; the config's takes its place", label)
        with self._lock:
            reason = f"{label} cannot be read any more"
            self._become(sets.activated(self._history, own, by="protection", reason=reason, now=self._wall()))
        return settings

    def block(self, reason: str) -> bool:
        """Whether a set that was held back may come now."""
        freed = bool(self._blocked) and not reason
        self._blocked = reason
        self._revision += freed
        return freed

    def roll_back(self, reason: str, evidence: Mapping[str, float | int | str | None]) -> Incident | None:
        """None where there is nothing to go back to."""
        with self._lock:
            before, now = self._history, self._wall()
            self._become(sets.rolled_back(before, reason=reason, evidence=evidence, now=now))
            after = self._history
        if after.active == before.active:
            return None
        self._revision += 1
        return incident(
            before, after, "rolled_back", reason=reason, severity=Severity.CRITICAL, now=now, evidence=evidence
        )

    def prove(self, reason: str, *, by: str = "protection") -> Incident | None:
        """The active set did well; None where that is known."""
        with self._lock:
            before, now = self._history, self._wall()
            self._become(sets.proved(before, by=by, reason=reason, now=now))
            after = self._history
        return (
            None
            if after is before
            else incident(before, after, "proved", reason=reason, severity=Severity.INFO, now=now)
        )

    def activate(self, version: str, *, by: str) -> Incident | None:
        """UnknownVersion where none or several begin so; None where it is active already."""
        with self._lock:
            before, now = self._history, self._wall()
            found = [each.version for each in before.versions if version and each.version.startswith(version)]
            if len(found) != 1:
                raise UnknownVersion(version)
            reason = "activated by an operator"
            self._become(sets.activated(before, found[0], by=by, reason=reason, now=now))
            after = self._history
        if after.active == before.active:
            return None
        self._revision += 1
        return incident(before, after, "activated", reason=reason, severity=Severity.INFO, now=now)

    def pin(self, *, pin: bool, by: str) -> Incident:
        with self._lock:
            before, now = self._history, self._wall()
            self._become(sets.pinned(before, pin=pin, by=by, now=now))
            after = self._history
        self._revision += 1
        state = "pinned" if pin else "unpinned"
        return incident(before, after, state, reason=f"by {by}", severity=Severity.INFO, now=now)

    def keep(self, *, now: float) -> None:
        """Write what the disk did not take, if it does by now. To be called often; `now` in monotonic seconds."""
        tried_at = self._tried_at
        if not self.unsaved or (tried_at is not None and 0 <= now - tried_at < RETRY_S):
            return
        self._tried_at = now
        with self._lock:
            self._become(self._history)

    def _become(self, history: History) -> None:
        if history == self._history and not self.unsaved:
            return
        self.unsaved = not self._save(msgspec.json.encode(history))
        self._history = history


def incident(
    before: History,
    after: History,
    state: str,
    *,
    reason: str,
    severity: Severity,
    now: float,
    evidence: Mapping[str, float | int | str | None] | None = None,
) -> Incident:
    """Of a change of the history; both versions are in the evidence."""
    names = {
        "from": before.current.label if before.current else "",
        "to": after.current.label if after.current else "",
    }
    return Incident(
        at=now,
        kind=Kind.PARAMETERS,
        subject="parameters",
        state=state,
        reason=reason,
        severity=severity,
        active=False,
        evidence={**names, **(evidence or {})},
    )


def _rebuilt(name: str, content: Mapping[str, object]) -> ParameterSet | None:
    try:
        return parsed(ParameterSet, {**content, "name": name})
    except ConfigError:
        return None


def _decoded(kept: bytes | None) -> History:
    """Empty where there is no file. A broken one is said in one line: the config's set becomes the active one."""
    if kept is None:
        return History()
    try:
        found = msgspec.json.decode(kept, type=History)
    except msgspec.MsgspecError as error:
        log.error("the history of parameter sets is not readable, it begins anew: %s", error)
        return History()
    if broken := sets.problems(found):
        log.error("the history of parameter sets is broken, it begins anew: %s", "; ".join(broken))
        return History()
    return found

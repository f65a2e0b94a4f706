"""What protection needs of a running sidecar, put together: history, incidents, webhook, the operator's socket.

Snapshots have two makers, the config and the protection loop; `Keeper` is the one place where they meet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from extproc.codec.workers import SnapshotTold, with_protection
from extproc.data_plane import DataPlane
from extproc.edge.operator_socket import Act, Refused
from extproc.loops.board import Board
from extproc.loops.parameter_history import ParameterHistory, UnknownVersion
from extproc.loops.tasks import spawn
from extproc.model.protection import CALM, Incident, Protection
from extproc.snapshot import Snapshot, protected

log = logging.getLogger("extproc.guarding")


class Keeper:
    """The current snapshot: what the config makes, under what the protection loop says. Used on the event loop.

    `told` is what workers build the config's part from, without protection.
    """

    def __init__(self, board: Board[Snapshot], told: Callable[[], SnapshotTold], group: asyncio.TaskGroup) -> None:
        self._board = board
        self._told = told
        self._group = group
        self._protection: Protection = CALM
        self.workers: DataPlane | None = None

    @property
    def current(self) -> Snapshot:
        return self._board.current

    def told(self) -> SnapshotTold:
        """The current snapshot, for workers."""
        return with_protection(self._told(), self._protection, self.current.generation)

    def replace(self, snapshot: Snapshot) -> int:
        """The config made another one; its generation here."""
        generation = max(snapshot.generation, self.current.generation + 1)
        return self._board.publish(protected(snapshot, self._protection, generation))

    def protect(self, protection: Protection) -> None:
        """Also before the first worker is there: whoever comes later is told the current one."""
        self._protection = CALM if protection == CALM else protection
        self._board.publish(protected(self.current, self._protection, self.current.generation + 1))
        if self.workers is not None:
            spawn(self._group, self.workers.publish(self.told()), name="tell workers")


class Operations:
    """What an operator may do by hand. `reconsider` makes the history's word the one in force."""

    def __init__(
        self,
        history: ParameterHistory,
        *,
        report: Callable[[Incident], None],
        reconsider: Callable[[], None],
        freeze: Callable[[], int],
    ) -> None:
        self._history = history
        self._report = report
        self._reconsider = reconsider
        self._freeze = freeze

    def acts(self) -> Mapping[str, Act]:
        return {
            "/params/activate": self._activate,
            "/params/pin": lambda given: self._pin(given, pin=True),
            "/params/unpin": lambda given: self._pin(given, pin=False),
            "/baseline/freeze": self._baseline,
        }

    def _activate(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        version = given.get("version")
        if not isinstance(version, str):
            raise Refused("version: allowed: the beginning of one of `extproc params list`")
        try:
            incident = self._history.activate(version, by=_by(given))
        except UnknownVersion:
            raise Refused(
                f"no parameter set, or several, of version {version!r}; see `extproc params list`"
            ) from None
        if incident is not None:
            self._report(incident)
            self._reconsider()
        return {"active": self._history.label}

    def _pin(self, given: Mapping[str, Any], *, pin: bool) -> Mapping[str, Any]:
        self._report(self._history.pin(pin=pin, by=_by(given)))
        self._reconsider()
        return {"active": self._history.label, "pinned": pin}

    def _baseline(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        frozen = self._freeze()
        if not frozen:
            raise Refused(
                "nothing to freeze yet: no pool and tier has drift.min_samples requests of the active parameter set"
            )
        incident = self._history.prove("baseline frozen by an operator", by=_by(given))
        if incident is not None:
            self._report(incident)
        return {"frozen": frozen, "parameter_set": self._history.label}


def _by(given: Mapping[str, Any]) -> str:
    """Who: as the command line tells; the socket's own permissions decide who may."""
    by = given.get("by")
    return by[:64] if isinstance(by, str) and by.isprintable() and by else "operator"

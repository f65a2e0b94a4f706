"""Where settings come from while a process runs: a file, its secrets and intent model, the parameters' history."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from pathlib import Path

from extproc import intent_model
from extproc.codec.workers import SnapshotTold, snapshot_told
from extproc.deployment import workers
from extproc.edge import secrets
from extproc.errors import ConfigError, Problem
from extproc.loops.parameter_history import ParameterHistory
from extproc.request.classify.intent import Unsure, nobody
from extproc.settings import Reading, Settings, changed_needing_restart, load, snapshot
from extproc.snapshot import Snapshot

log = logging.getLogger("extproc.config_source")

SECRETS = b"\n# secrets "
"""Begins what stands behind the file's own text."""


class ConfigSource:
    """Where settings come from: a file laid over the defaults, and what the command line adds to it.

    The content includes a digest of the files that secrets and the intent model are read from, so that a rotated
    secret or a new model is noticed as a changed config is. How many workers are automatic is settled at the start.
    """

    def __init__(self, path: Path | None, adjust: Callable[[Settings], Settings] = lambda s: s) -> None:
        self.path = path
        self._adjust = adjust
        self.settings = self._load(self._text())
        self.waiting: tuple[str, ...] = ()
        self.history: ParameterHistory | None = None
        """Says which parameter set is in force; without one it is the config's own."""
        self.unsure: Unsure = nobody

    def read(self) -> bytes:
        return self._text() + self._secrets_mark() + self._model_mark() + self._history_mark()

    def build(self, content: bytes, generation: int) -> Snapshot:
        """A snapshot of this content. Keys that need a restart are named in the log, and stay as they are.

        ConfigError also where the file has lost its content: a full disk or a save in two steps is no wish for all
        the defaults.
        """
        if self.path is not None and generation > 1 and not content.partition(SECRETS)[0].strip():
            raise ConfigError((Problem(self.path.name, "is empty; {} stands for all defaults"),))
        new = self._load(content)
        self.waiting = waiting = changed_needing_restart(self.settings, new)
        effective = new.model_copy(update={key: getattr(self.settings, key) for key in waiting})
        held = secrets.read(effective)
        if self.history is not None:
            effective = self.history.effective(effective)
        weights = intent_model.read(effective.intent)
        if weights is not None:
            # Workers read the file by themselves, and must not find another one.
            found = effective.intent.model_copy(update={"sha256": weights.digest})
            effective = effective.model_copy(update={"intent": found})
        reading = Reading(weights, timer=time.perf_counter, unsure=self.unsure)
        built = snapshot(effective, held, generation=generation, reading=reading)
        self._built = held, generation
        if waiting:
            log.warning("changed, but in force only after a restart: %s", ", ".join(waiting))
        self.settings = effective
        return built

    def told(self) -> SnapshotTold:
        """What workers build the last snapshot from."""
        return snapshot_told(self.settings, *self._built)

    def _load(self, content: bytes) -> Settings:
        settings = self._adjust(load(content))
        return settings.model_copy(update={"workers": workers(settings)})

    def _text(self) -> bytes:
        return self.path.read_bytes() if self.path else b"{}\n"

    def _history_mark(self) -> bytes:
        """Another set in force is another content."""
        return b"" if self.history is None else b"\n# parameters %d\n" % self.history.revision

    def _model_mark(self) -> bytes:
        if not (self.settings.intent.enabled and self.settings.intent.model):
            return b""
        try:
            mark = hashlib.sha256(intent_model.data_of(self.settings.intent)).hexdigest()
        except OSError as error:
            mark = str(error.errno)
        return b"\n# intent " + mark.encode() + b"\n"

    def _secrets_mark(self) -> bytes:
        digest = hashlib.sha256()
        for path in secrets.files(self.settings):
            try:
                digest.update(path.read_bytes())
            except OSError as error:
                digest.update(str(error.errno).encode())
        return SECRETS + digest.hexdigest().encode() + b"\n"

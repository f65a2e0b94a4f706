"""Texts the intent model is unsure about, kept for a person to label, where the configuration says they may be.

They are payload: no other file of the sidecar holds any. A file per process that judges, of bounded size.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from extproc.edge.audit_file import AuditFile
from extproc.model.values import Classification

NAME = "unsure.{}.jsonl"
PATTERN = "unsure.*.jsonl*"

MAX_PENDING = 1000
"""Texts that wait for the disk; more are not kept."""


class Text(Struct, frozen=True):
    """What the model thought likely: `confidence` in its tier."""

    text: str
    tier: str
    scenario: str
    confidence: float


class UnsureTexts:
    """`keep_bytes` by call: a reload may change it. Nothing is opened before the first text."""

    def __init__(self, state_dir: Path, worker: int, keep_bytes: Callable[[], int]) -> None:
        self._path = state_dir / NAME.format(worker)
        self._keep_bytes = keep_bytes
        self._file: AuditFile | None = None

    def __call__(self, text: str, verdict: Classification) -> None:
        if self._file is None:
            # Half of the bound: a full file makes room, and one before it stays.
            self._file = AuditFile(
                self._path, max_bytes=max(1, self._keep_bytes() // 2), keep=1, max_pending=MAX_PENDING
            )
        record = Text(text, verdict.tier.value, verdict.scenario, verdict.confidence)
        self._file.append((line(record),))

    def close(self) -> None:
        """Blocks until what waits is on the disk."""
        if self._file is not None:
            self._file.close()


def line(record: Text) -> bytes:
    """JSON with its break; a question mark for each lone surrogate: JSON can spell one, UTF-8 cannot."""
    text = record.text.encode("utf-8", "replace").decode()
    return msgspec.json.encode(replace(record, text=text)) + b"\n"


def read(state_dir: Path) -> list[Text]:
    """All that are kept, those one is least sure about first; equal texts once. Lines that are cut short are no
    texts."""
    found: dict[str, Text] = {}
    for path in sorted(state_dir.glob(PATTERN)):
        for raw in path.read_bytes().splitlines():
            try:
                text = msgspec.json.decode(raw, type=Text)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
            found.setdefault(text.text, text)
    return sorted(found.values(), key=lambda each: (each.confidence, each.text))

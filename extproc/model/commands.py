"""What the shell is to do, in the imperative. Each of the first three answers one message of Envoy."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from extproc.model.values import AuditRecord, Decision, Target


class Continue(Struct, frozen=True):
    """Let the phase go on. `body` None leaves the body as it is.

    `set_headers` replaces, and so do `body_headers`, which go with a new body (its length). `metadata` fills the
    dynamic metadata namespace `llm`; `stream_body` asks Envoy not to buffer a body that nobody reads.
    """

    phase: str
    set_headers: tuple[tuple[str, bytes], ...] = ()
    body: bytes | None = None
    body_headers: tuple[tuple[str, bytes], ...] = ()
    clear_route_cache: bool = False
    metadata: Mapping[str, str] | None = None
    stream_body: bool = False


class Reject(Struct, frozen=True):
    """Answer the client at once; nothing reaches an engine."""

    status: int
    reason: str
    headers: tuple[tuple[str, bytes], ...]
    body: bytes


class CloseStream(Struct, frozen=True):
    """The peer broke the protocol: end the stream with INVALID_ARGUMENT, `reason` as its message."""

    reason: str


class RecordDecision(Struct, frozen=True):
    """A request was decided: count it and append its audit records, which come as JSON lines."""

    target: Target
    decision: Decision
    audit_lines: tuple[bytes, ...]

    @property
    def audit(self) -> tuple[AuditRecord, ...]:
        """The lines as values."""
        return tuple(msgspec.json.decode(line, type=AuditRecord) for line in self.audit_lines)


class RecordPass(Struct, frozen=True):
    """A request passes untouched, and why."""

    reason: str


class RecordReject(Struct, frozen=True):
    reason: str
    status: int


Command = Continue | Reject | CloseStream | RecordDecision | RecordPass | RecordReject

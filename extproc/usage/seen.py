"""What Envoy shows of one exchange, in the past tense, and what comes of reading it."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from extproc.model.names import Dialect
from extproc.model.telemetry import UsageSample


class RequestSeen(Struct, frozen=True, kw_only=True):
    """What the decision wrote into the request; "" where it wrote nothing, as for a request that passed unjudged.

    `model` is the name the decision or the path gave; "" leaves it to the answer. `body_bytes`: as declared, 0 =
    not.
    """

    dialect: Dialect | None
    model: str = ""
    scenario: str = ""
    tier: str = ""
    tenant: str = ""
    pool: str = ""
    body_bytes: int = 0


class AnswerSeen(Struct, frozen=True):
    """An answer's headers. `content_type` is the bare media type, lower-case. `over`: there is no body."""

    status: int
    content_type: str
    content_encoding: str
    over: bool


class PieceSeen(Struct, frozen=True):
    """A piece of the answer's body, cut anywhere."""

    body: bytes
    over: bool


class TrailersSeen(Struct, frozen=True):
    """The answer's end, where it has trailers."""


Seen = RequestSeen | AnswerSeen | PieceSeen | TrailersSeen


class Outcome(StrEnum):
    """READ: the engine told its tokens. ABORTED: client or engine broke off first."""

    READ = "read"
    ESTIMATED = "estimated"
    SKIPPED = "skipped"
    ABORTED = "aborted"


class Skip(StrEnum):
    """Why an answer tells no usage."""

    NO_REQUEST = "no_request"  # answered by Envoy before the request came here
    NO_DIALECT = "no_dialect"
    NO_TOKENS = "no_tokens"  # tensors
    STATUS = "status"
    NO_BODY = "no_body"
    ENCODED = "encoded"
    CONTENT_TYPE = "content_type"
    NO_USAGE = "no_usage"
    TOO_LARGE = "too_large"  # and no usage at its end
    BUSY = "busy"
    PROTOCOL = "protocol"
    INTERNAL = "internal"  # a bug of ours


class Verdict(Struct, frozen=True):
    """`reason` is "" but for skipped answers. A sample of an aborted answer holds what was seen of it."""

    outcome: Outcome
    reason: str = ""
    sample: UsageSample | None = None

"""How a request ended, as far as the engine is to blame.

Only what an engine answered, or failed to, counts for or against it. A client that hangs up, a limit of Envoy's
own, a rejection of ours: a weight or a breaker that moved by one of them would move by what the engine has no part
in.
"""

from __future__ import annotations

from enum import IntEnum

from extproc.model.telemetry import AccessSample


class Outcome(IntEnum):
    """Numbers are places in a list of counts."""

    OK = 0
    CLIENT_ERROR = 1
    """A 4xx of the engine: it works."""
    ERROR = 2
    """5xx, no answer, or one that broke off."""
    CANCELLED = 3
    """The client left before the end."""
    OVERFLOW = 4
    """Envoy's circuit breaker was full: the engine was not asked."""
    LOCAL = 5
    """Answered before an engine was to be asked: a rejection, no route, no such cluster."""


TIMEOUTS = frozenset({"UT", "SI", "DT", "UMSDR"})
"""Response flags of requests that lasted at least as long as their total says."""

_LEFT = frozenset({"DC", "DR"})
_FAILED = frozenset({"UH", "UF", "URX", "UC", "UR", "UPE", "LR", "DF"}) | TIMEOUTS
"""An engine was to be asked, whether or not one is named, and did not answer to the end."""


def outcome(sample: AccessSample) -> Outcome:
    """Whose fault the end was, by status and Envoy's response flags."""
    flags, status = sample.flags, sample.status
    # Nearly all: no flag, and an engine's answer.
    if not flags:
        return _by_status(status) if sample.upstream else Outcome.LOCAL
    if "UO" in flags:
        return Outcome.OVERFLOW
    # A failure the engine had already answered stays one, also where the client did not stay to read it.
    if status < 500 and not _LEFT.isdisjoint(flags):
        return Outcome.CANCELLED
    if not _FAILED.isdisjoint(flags):
        # Envoy had passed on a status already where the answer broke off; a 4xx had said it all by then.
        return Outcome.CLIENT_ERROR if 400 <= status < 500 else Outcome.ERROR
    return _by_status(status) if sample.upstream else Outcome.LOCAL


def _by_status(status: int) -> Outcome:
    if 0 < status < 400:
        return Outcome.OK
    return Outcome.CLIENT_ERROR if 400 <= status < 500 else Outcome.ERROR

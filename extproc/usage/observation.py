"""One exchange as the observer sees it: what Envoy shows in, a verdict out, once.

One stream of Envoy's filter is one request and its answer, so nothing has to be matched. The rejected
alternative, a request id shared by decision and answer, mixes up clients that send the same one.
"""

from __future__ import annotations

from collections.abc import Iterable

from extproc.model.telemetry import UsageSample
from extproc.usage.event_stream import ERROR, EventStream, ServerEvent
from extproc.usage.facts import NOTHING, Facts, joined
from extproc.usage.formats import READERS, Read, facts
from extproc.usage.held import Held
from extproc.usage.seen import AnswerSeen, Outcome, PieceSeen, RequestSeen, Seen, Skip, TrailersSeen, Verdict

JSON = "application/json"
EVENT_STREAM = "text/event-stream"
ABORTED = Verdict(Outcome.ABORTED)
MAX_NAME = 256
_FAILED = Facts(failed=True)


class Observation:
    """Holds `max_held_bytes` of an answer and little more, whatever its length."""

    __slots__ = ("_answer", "_limit", "_request")

    def __init__(self, max_held_bytes: int) -> None:
        self._limit = max_held_bytes
        self._request: RequestSeen | None = None
        self._answer: _Document | _Events | None = None

    def handle(self, seen: Seen) -> Verdict | None:
        """None while there is more to see; nothing is asked after a verdict."""
        match seen:
            case RequestSeen():
                return self._on_request(seen)
            case AnswerSeen():
                return self._on_answer(seen)
            case PieceSeen() if self._answer is not None:
                self._answer.add(seen.body)
                return self._conclude() if seen.over else None
            case TrailersSeen() if self._answer is not None:
                return self._conclude()
        return skipped(Skip.PROTOCOL)

    def broken_off(self) -> Verdict:
        """The verdict where Envoy ends the stream before the answer's end."""
        if not isinstance(self._answer, _Events):
            return ABORTED
        told = self._answer.end()
        if told.finish_reason:
            return self._sampled(told)  # all was said: a client that leaves at [DONE] is no abort
        return ABORTED if told == NOTHING else Verdict(Outcome.ABORTED, sample=self._sample(told))

    def _on_request(self, request: RequestSeen) -> Verdict | None:
        self._request = request
        if request.dialect is None:
            return skipped(Skip.NO_DIALECT)
        return None if request.dialect in READERS else skipped(Skip.NO_TOKENS)

    def _on_answer(self, answer: AnswerSeen) -> Verdict | None:
        if self._request is None or self._request.dialect is None:
            return skipped(Skip.NO_REQUEST)
        if (why := unread_reason(answer)) is not None:
            return skipped(why)
        form = _Events if answer.content_type == EVENT_STREAM else _Document
        self._answer = form(READERS[self._request.dialect], self._limit)
        return None

    def _conclude(self) -> Verdict:
        assert self._answer is not None, "headers come before the body"
        told = self._answer.end()
        if isinstance(self._answer, _Document) and told.output_tokens is None:
            return skipped(Skip.TOO_LARGE if self._answer.too_large else Skip.NO_USAGE)
        return skipped(Skip.NO_USAGE) if told == NOTHING else self._sampled(told)

    def _sampled(self, told: Facts) -> Verdict:
        outcome = Outcome.ESTIMATED if told.output_tokens is None else Outcome.READ
        return Verdict(outcome, sample=self._sample(told))

    def _sample(self, told: Facts) -> UsageSample:
        request = self._request
        assert request is not None, "the request comes before its answer"
        estimated = told.output_tokens is None
        return UsageSample(
            model=(request.model or told.model)[:MAX_NAME],
            scenario=request.scenario,
            tier=request.tier,
            tenant=request.tenant,
            pool=request.pool,
            prompt_tokens=told.prompt_tokens,
            output_tokens=told.pieces if told.output_tokens is None else told.output_tokens,
            finish_reason=told.finish_reason or ("error" if told.failed else ""),
            estimated=estimated,
            request_bytes=request.body_bytes,
        )


class _Document:
    """A JSON answer."""

    def __init__(self, read: Read, limit: int) -> None:
        self._read = read
        self._held = Held(limit)

    @property
    def too_large(self) -> bool:
        return self._held.whole is None

    def add(self, piece: bytes) -> None:
        self._held.add(piece)

    def end(self) -> Facts:
        return facts(self._read, self._held)


class _Events:
    """An answer as a stream of events."""

    def __init__(self, read: Read, limit: int) -> None:
        self._read = read
        self._stream = EventStream(limit)
        self._told = NOTHING

    def add(self, piece: bytes) -> None:
        self._tell(self._stream.feed(piece))

    def end(self) -> Facts:
        self._tell(self._stream.end())
        return self._told

    def _tell(self, events: Iterable[ServerEvent]) -> None:
        for event in events:
            self._told = joined(self._told, facts(self._read, event.data))
            if event.name == ERROR:
                self._told = joined(self._told, _FAILED)


def unread_reason(answer: AnswerSeen) -> Skip | None:
    """Why an answer is not read; None where it is."""
    if not 200 <= answer.status < 300:
        return Skip.STATUS
    if answer.over:
        return Skip.NO_BODY
    if answer.content_encoding not in ("", "identity"):
        return Skip.ENCODED
    return None if answer.content_type in (JSON, EVENT_STREAM) else Skip.CONTENT_TYPE


def skipped(reason: Skip) -> Verdict:
    return Verdict(Outcome.SKIPPED, reason)

"""One ext_proc stream as a state machine: events of Envoy in, commands for the shell out.

Every message of Envoy is answered once, and nothing is said after the end of the request or after a
rejection. Bodies are judged in the body phase, where body, content-length and headers leave together; the
rejected alternative, headers in the headers phase, leaves half a decision in force when the body phase fails.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from extproc.decide import priority
from extproc.errors import ClientFault, Unavailable
from extproc.judge import Arrival, audit_lines, judge
from extproc.model.commands import (
    CloseStream,
    Command,
    Continue,
    RecordDecision,
    RecordPass,
    RecordReject,
    Reject,
)
from extproc.model.events import (
    EmptyReceived,
    Event,
    RequestBodyReceived,
    RequestHeadersReceived,
    RequestTrailersReceived,
    ResponseReceived,
)
from extproc.request import caller as callers
from extproc.request import paths
from extproc.request.headers import Headers
from extproc.snapshot import Snapshot

HEADERS_PHASE = "request_headers"
BODY_PHASE = "request_body"
TRAILERS_PHASE = "request_trailers"
MAX_REQUEST_ID = 128
MAX_LENGTH_DIGITS = 15
GO_ON = Continue(HEADERS_PHASE)
READABLE_BODY_MODES = ("", "BUFFERED")


class State(Enum):
    """Where a stream stands.

    PASSING: the rest of the request goes by unread. ENDED: the request is over. CLOSED: the client has been
    answered, or the peer broke the protocol; nothing is said any more.
    """

    START = "start"
    AWAITING_BODY = "awaiting_body"
    PASSING = "passing"
    ENDED = "ended"
    CLOSED = "closed"


class Exchange:
    """The state of one stream. `snapshot` of the first event stays in force until the stream ends."""

    __slots__ = ("_arrival", "_snapshot", "state")

    def __init__(self) -> None:
        self.state = State.START
        self._arrival: Arrival | None = None
        self._snapshot: Snapshot | None = None

    @property
    def over(self) -> bool:
        """Whether nothing of the request is left to come."""
        return self.state in (State.ENDED, State.CLOSED)

    @property
    def arrival(self) -> Arrival | None:
        """The request as its headers tell it; None before they came."""
        return self._arrival

    @property
    def request_id(self) -> str:
        """As Envoy gave it; "" before the headers, and where there is none. Each byte is one character."""
        if self._arrival is None:
            return ""
        # Latin-1 gives every byte a character, so that each record can be written.
        return (self._arrival.headers.one("x-request-id") or b"")[:MAX_REQUEST_ID].decode("latin-1")

    def handle(self, event: Event, snapshot: Snapshot, *, now: float) -> list[Command]:
        """The commands for one event; `now` in seconds since the epoch goes into audit records."""
        try:
            return self._handle(event, self._snapshot or snapshot, now)
        except (ClientFault, Unavailable) as fault:
            self.state = State.CLOSED
            return [RecordReject(fault.reason, fault.status), rejection(fault)]

    def _handle(self, event: Event, snapshot: Snapshot, now: float) -> list[Command]:
        if self.state is State.CLOSED:
            return []
        match event:
            case ResponseReceived():
                return [Continue(event.phase)]
            case _ if self.state is State.ENDED:
                return []
            case RequestHeadersReceived() if self.state is State.START:
                self._snapshot = snapshot
                return self._on_headers(event, snapshot)
            case RequestBodyReceived() if self.state is State.AWAITING_BODY:
                self.state = State.ENDED if event.end_of_stream else State.PASSING
                return self._on_body(event.body, snapshot, now)
            case RequestBodyReceived() if self.state is State.PASSING:
                self.state = State.ENDED if event.end_of_stream else State.PASSING
                return [Continue(BODY_PHASE)]
            case RequestTrailersReceived() if self.state is not State.START:
                self.state = State.ENDED
                return [Continue(TRAILERS_PHASE)]
            case EmptyReceived():
                return self._broken("a message without a request")
            case _:
                return self._broken(f"{type(event).__name__} in state {self.state.value}")

    def _broken(self, reason: str) -> list[Command]:
        self.state = State.CLOSED
        return [CloseStream(reason)]

    def _on_headers(self, event: RequestHeadersReceived, snapshot: Snapshot) -> list[Command]:
        headers = Headers(event.headers)
        path = headers.text(":path")
        caller = callers.read(headers, event.attributes, snapshot.trust, snapshot.tenants)
        self._arrival = arrival = Arrival(paths.target(path), caller, headers, path)
        unread = unread_reason(arrival, event, encoded_pass=snapshot.encoded_bodies_pass)
        if unread is not None:
            self.state = State.ENDED if event.end_of_stream else State.PASSING
            return _pass(HEADERS_PHASE, unread, arrival, snapshot, stream_body=not event.end_of_stream)
        # A body that some other mode delivers in pieces can't be judged: fail as configured, visibly.
        if event.body_mode not in READABLE_BODY_MODES:
            return self._broken(f"request_body_mode {event.body_mode}, allowed: BUFFERED")
        check_length(headers, snapshot.limits.max_body_bytes)
        self.state = State.AWAITING_BODY
        return [GO_ON]

    def _on_body(self, body: bytes, snapshot: Snapshot, now: float) -> list[Command]:
        arrival = self._arrival
        assert arrival is not None, "headers come before the body"
        if not body:
            return _pass(BODY_PHASE, "no_body", arrival, snapshot, stream_body=False)
        if len(body) > snapshot.limits.max_body_bytes:
            raise too_large(snapshot.limits.max_body_bytes)
        judged = judge(body, arrival, snapshot)
        outcome = judged.outcome
        answer = Continue(
            BODY_PHASE,
            set_headers=outcome.headers,
            body=judged.body,
            body_headers=judged.body_headers,
            clear_route_cache=True,
            metadata=outcome.metadata,
        )
        lines = audit_lines(outcome.audit, self.request_id, now)
        return [RecordDecision(arrival.target, outcome.decision, lines), answer]


def _pass(phase: str, reason: str, arrival: Arrival, snapshot: Snapshot, *, stream_body: bool) -> list[Command]:
    """Untouched, but routed and ranked: what the headers alone decide."""
    rank = priority.request_class(arrival.caller, snapshot.tenants, None)
    set_headers = [("x-llm-priority", rank.value), ("x-llm-tenant", arrival.caller.tenant)]
    destination = snapshot.registry.pool_for(arrival.target.family)
    if destination is not None:
        set_headers.append(("x-llm-pool", destination.name))
    answer = Continue(
        phase,
        set_headers=tuple((name, value.encode()) for name, value in set_headers),
        clear_route_cache=True,
        metadata={"class": rank.value, "tenant": arrival.caller.tenant, "passed": reason},
        stream_body=stream_body,
    )
    return [RecordPass(reason), answer]


def unread_reason(arrival: Arrival, event: RequestHeadersReceived, *, encoded_pass: bool) -> str | None:
    """Why a request's body is not read; None where it is. ClientFault 415 for an encoded one."""
    headers = arrival.headers
    if arrival.target.dialect is None:
        return "no_dialect"
    if headers.one(":method") != b"POST":
        return "method"
    if event.end_of_stream:
        return "no_body"
    if event.body_mode == "NONE":
        return "body_not_sent"
    encoding = headers.text("content-encoding").lower()
    if "content-encoding" not in headers or encoding == "identity":
        return None
    if encoded_pass:
        return "encoded_body"
    raise ClientFault(
        415,
        "encoded_body",
        "Encoded request bodies are not accepted here: send the body without content-encoding.",
        param="content-encoding",
    )


def check_length(headers: Headers, most: int) -> None:
    """ClientFault 413 for a declared length over the limit, before a byte of it is buffered."""
    declared = headers.text("content-length")
    if declared.isdecimal() and (len(declared) > MAX_LENGTH_DIGITS or int(declared) > most):
        raise too_large(most)


def too_large(most: int) -> ClientFault:
    return ClientFault(413, "body_too_large", f"The body is larger than {most} bytes (limits.max_body_bytes).")


def rejection(fault: ClientFault | Unavailable) -> Reject:
    """An OpenAI-shaped error answer."""
    headers: tuple[tuple[str, bytes], ...] = (("content-type", b"application/json"),)
    kind, param = "invalid_request_error", None
    if isinstance(fault, Unavailable):
        kind = "server_error"
        headers = (*headers, ("retry-after", b"%d" % fault.retry_after_s))
    else:
        param = fault.param
    error = {"message": fault.message, "type": kind, "param": param, "code": fault.reason}
    return Reject(fault.status, fault.reason, headers, msgspec.json.encode({"error": error}))

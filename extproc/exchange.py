"""One ext_proc stream as a state machine: events of Envoy in, commands for the shell out.

Every message of Envoy is answered once, and nothing is said after the end of the request or after a
rejection. Bodies are judged in the body phase, where body, content-length and headers leave together; the
rejected alternative, headers in the headers phase, leaves half a decision in force when the body phase fails.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from extproc.decide import pipeline, pool, priority
from extproc.decide.context import Context
from extproc.errors import ClientFault
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
from extproc.model.names import Field
from extproc.model.values import ABSENT, AuditRecord, Caller, Decision, Scalar, Target, Value
from extproc.request import caller as callers
from extproc.request import paths
from extproc.request.classify.pick import classify
from extproc.request.document import Document, Reading, Writing, Written
from extproc.request.formats import READERS
from extproc.request.headers import Headers
from extproc.snapshot import Snapshot

HEADERS_PHASE = "request_headers"
BODY_PHASE = "request_body"
TRAILERS_PHASE = "request_trailers"
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


class Arrival(msgspec.Struct, frozen=True):
    """A request as its headers tell it."""

    target: Target
    caller: Caller
    headers: Headers
    path: str


class Judged(msgspec.Struct, frozen=True):
    """A decided request: what leaves, and the decision behind it."""

    decision: Decision
    written: Written
    body_changed: bool


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

    def handle(self, event: Event, snapshot: Snapshot, *, now: float) -> list[Command]:
        """The commands for one event; `now` in seconds since the epoch goes into audit records."""
        try:
            return self._handle(event, self._snapshot or snapshot, now)
        except ClientFault as fault:
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
        return [Continue(HEADERS_PHASE)]

    def _on_body(self, body: bytes, snapshot: Snapshot, now: float) -> list[Command]:
        arrival = self._arrival
        assert arrival is not None, "headers come before the body"
        if not body:
            return _pass(BODY_PHASE, "no_body", arrival, snapshot, stream_body=False)
        if len(body) > snapshot.limits.max_body_bytes:
            raise too_large(snapshot.limits.max_body_bytes)
        judged = judge(body, arrival, snapshot)
        request_id = arrival.headers.text("x-request-id")
        answer = Continue(
            BODY_PHASE,
            set_headers=engine_headers(judged),
            body=judged.written.body if judged.body_changed else None,
            clear_route_cache=True,
            metadata=metadata(judged.decision),
        )
        audit = audit_records(judged.decision, request_id, arrival.target, now)
        return [RecordDecision(arrival.target, judged.decision, audit), answer]


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
    if declared.isdecimal() and int(declared) > most:
        raise too_large(most)


def too_large(most: int) -> ClientFault:
    return ClientFault(413, "body_too_large", f"The body is larger than {most} bytes (limits.max_body_bytes).")


def judge(body: bytes, arrival: Arrival, snapshot: Snapshot) -> Judged:
    """Read, classify, decide, write: everything about one body. ClientFault where it cannot be read."""
    target = arrival.target
    assert target.dialect is not None, "only read requests are judged"
    registry, parameters = snapshot.registry, snapshot.parameters
    reading = Reading(
        target=target,
        headers=arrival.headers,
        max_keys=snapshot.limits.max_keys,
        max_chars=parameters.classify.max_chars,
        triton=lambda model: registry.profile(model).triton,
    )
    document = READERS[target.dialect](body, reading)
    context, destination = _context(document, arrival, snapshot)
    changes = pipeline.changes(context)
    written = document.write(changes, Writing(destination.engine, context.profile.triton))
    final = next((change.after for change in changes if change.field is Field.MAX_TOKENS), ABSENT)
    granted = context.request.given.get(Field.MAX_TOKENS) if final is ABSENT else final
    threshold = parameters.inference_params.max_tokens.streaming_threshold
    decision = Decision(
        tier=context.classification.tier,
        scenario=context.classification.scenario,
        confidence=context.classification.confidence,
        source=context.classification.source,
        rule=context.classification.rule,
        request_class=context.request_class,
        tenant=arrival.caller.tenant,
        engine=destination.engine,
        pool=destination.pool,
        parameter_set=snapshot.parameter_set,
        profile=context.profile.name,
        max_tokens=None if granted is None else int(granted),
        continuation=granted is not None and int(granted) > threshold,
        changes=changes,
    )
    return Judged(decision, written, written.body is not body)


def _context(document: Document, arrival: Arrival, snapshot: Snapshot) -> tuple[Context, pool.Destination]:
    request, parameters, registry = document.request, snapshot.parameters, snapshot.registry
    profile = registry.profile(request.model)
    destination = pool.choose(registry, arrival.target, profile.pool)
    rules = parameters.classify
    classification = classify(
        request,
        arrival.caller,
        snapshot.classifiers,
        default_tier=rules.default_tier,
        default_scenario=rules.default_scenario,
        min_confidence=rules.min_confidence,
    )
    rank = priority.request_class(
        arrival.caller, snapshot.tenants, parameters.scenarios.get(classification.scenario)
    )
    context = Context(
        request=request,
        caller=arrival.caller,
        classification=classification,
        request_class=rank,
        parameters=parameters,
        profile=profile,
        engine=destination.engine,
        engine_rules=registry.engine_rules(destination.engine),
        schedules_by_priority=destination.schedules_by_priority,
        lowest_latency=profile.lowest_latency or _is_fast_path(arrival.path, snapshot.lowest_latency_paths),
        respell_length=document.respells(destination.engine),
    )
    return context, destination


def _is_fast_path(path: str, prefixes: tuple[str, ...]) -> bool:
    return bool(prefixes) and path.startswith(prefixes)


def engine_headers(judged: Judged) -> tuple[tuple[str, bytes], ...]:
    """Request headers for engine and routes. `content-length` goes with every body we send."""
    values = metadata(judged.decision)
    set_headers = [
        ("x-llm-tier", values["tier"].encode()),
        ("x-llm-scenario", values["scenario"].encode()),
        ("x-llm-priority", values["class"].encode()),
        ("x-llm-params", values["params"].encode()),
        ("x-llm-tenant", values["tenant"].encode()),
    ]
    if judged.decision.pool is not None:
        set_headers.append(("x-llm-pool", judged.decision.pool.encode()))
    if judged.decision.continuation:
        set_headers.append(("x-llm-continuation", b"1"))
    if judged.body_changed:
        set_headers.append(("content-length", str(len(judged.written.body)).encode()))
    return (*set_headers, *judged.written.headers)


def metadata(decision: Decision) -> dict[str, str]:
    """The same values for access logs (dynamic metadata, namespace `llm`)."""
    values = {
        "tier": decision.tier.value,
        "scenario": decision.scenario,
        "class": decision.request_class.value,
        "params": decision.parameter_set,
        "tenant": decision.tenant,
        "rule": decision.rule,
    }
    return values if decision.pool is None else values | {"pool": decision.pool}


def audit_records(decision: Decision, request_id: str, target: Target, now: float) -> tuple[AuditRecord, ...]:
    dialect = target.dialect.value if target.dialect else ""
    return tuple(
        AuditRecord(
            ts=now,
            request_id=request_id,
            tenant=decision.tenant,
            dialect=dialect,
            field=change.field.value,
            from_=_or_null(change.before),
            to=_or_null(change.after),
            rule=change.rule,
            reason=change.reason,
            tier=decision.tier.value,
            scenario=decision.scenario,
            confidence=decision.confidence,
            parameter_set=decision.parameter_set,
        )
        for change in decision.changes
    )


def _or_null(value: Value) -> Scalar | None:
    return None if value is ABSENT else value


def rejection(fault: ClientFault) -> Reject:
    """An OpenAI-shaped error answer."""
    error = {
        "message": fault.message,
        "type": "invalid_request_error",
        "param": fault.param,
        "code": fault.reason,
    }
    headers = (("content-type", b"application/json"),)
    return Reject(fault.status, fault.reason, headers, msgspec.json.encode({"error": error}))

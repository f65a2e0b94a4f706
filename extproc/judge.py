"""Everything about one body: read, classify, decide, write.

What is decided depends on little of a body: its rule-named values, its model, its verdict. That part is
remembered (`Outcome`), so that a request like an earlier one costs a look-up and the edit of its bytes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from extproc.decide import fallback, pipeline, pool, priority
from extproc.decide.context import Context
from extproc.model.lengths import length_bucket
from extproc.model.names import Field
from extproc.model.values import (
    ABSENT,
    AuditRecord,
    Caller,
    Change,
    Classification,
    Decision,
    Scalar,
    Target,
    Value,
)
from extproc.parameters import ParameterSet
from extproc.request.classify.pick import classify
from extproc.request.document import Document, Reading, Writing, Written
from extproc.request.formats import READERS
from extproc.request.headers import Headers
from extproc.snapshot import Snapshot


class Arrival(Struct, frozen=True):
    """A request as its headers tell it."""

    target: Target
    caller: Caller
    headers: Headers
    path: str


class Outcome(Struct, frozen=True):
    """What follows from all that rules can see.

    `edits` are the document's own, `headers` are for engine and routes, `audit` holds what `audit_tails` makes.
    """

    decision: Decision
    edits: Any
    headers: tuple[tuple[str, bytes], ...]
    metadata: Mapping[str, str]
    audit: tuple[bytes, ...]


class Judged(Struct, frozen=True):
    """A judged request. `body` None = it leaves as it came; `body_headers` go with a new one."""

    outcome: Outcome
    body: bytes | None
    body_headers: tuple[tuple[str, bytes], ...]


def judge(body: bytes, arrival: Arrival, snapshot: Snapshot) -> Judged:
    """ClientFault where the body cannot be read, or nobody serves it."""
    document = _read(body, arrival, snapshot)
    rules = snapshot.parameters.classify
    verdict = classify(
        document,
        arrival.caller,
        snapshot.classifiers,
        default_tier=rules.default_tier,
        default_scenario=rules.default_scenario,
        min_confidence=rules.min_confidence,
    )
    outcome = _outcome(
        document, verdict, _Facts(arrival, length_bucket(len(body)), _drawn(arrival, snapshot)), snapshot
    )
    if outcome.decision.fallback:
        return _lightened(document, outcome, arrival, snapshot)
    written = document.written(outcome.edits)
    return _judged(outcome, written, changed=written.body is not body)


class _Facts(Struct, frozen=True):
    """What decides about a request beside its body. `drawn` in [0, 10,000), 0 on a quiet day."""

    arrival: Arrival
    length: str
    drawn: int


def _drawn(arrival: Arrival, snapshot: Snapshot) -> int:
    if snapshot.protection.calm:
        return 0
    return fallback.draw(arrival.headers.one("x-request-id") or b"")


def _lightened(document: Document, outcome: Outcome, arrival: Arrival, snapshot: Snapshot) -> Judged:
    """For a light pool: its own model's name, and the end of the prompt. The audit tells lengths, never text."""
    decision = outcome.decision
    per_token = snapshot.protection.bytes_per_token.get(decision.profile, snapshot.fallback.bytes_per_token)
    cut = document.shortened(tokens=snapshot.fallback.prompt_tokens, bytes_per_token=per_token)
    changes = []
    more = dict(cut.edits)
    if cut.edits:
        changes.append(Change(Field.PROMPT_TOKENS, cut.before, cut.after, "fallback.prompt", decision.fallback))
    served = snapshot.registry.served_model(decision.pool)
    if served is not None and arrival.target.model is None:
        more["model"] = msgspec.json.encode(served)
        changes.append(Change(Field.MODEL, document.request.model, served, "fallback.model", decision.fallback))
    written = document.written(outcome.edits, more)
    tails = audit_tails(audit_records(decision, "", arrival.target, 0.0, changes))
    return _judged(replace(outcome, audit=(*outcome.audit, *tails)), written, changed=True)


def _read(body: bytes, arrival: Arrival, snapshot: Snapshot) -> Document:
    target, registry = arrival.target, snapshot.registry
    assert target.dialect is not None, "only read requests are judged"
    reading = Reading(
        target=target,
        headers=arrival.headers,
        max_keys=snapshot.limits.max_keys,
        max_chars=snapshot.parameters.classify.max_chars,
        triton=registry.triton,
    )
    return READERS[target.dialect](body, reading)


def _judged(outcome: Outcome, written: Written, *, changed: bool) -> Judged:
    if not changed:
        return Judged(outcome, None, ())
    return Judged(outcome, written.body, (("content-length", b"%d" % len(written.body)), *written.headers))


def _outcome(document: Document, verdict: Classification, facts: _Facts, snapshot: Snapshot) -> Outcome:
    key = _key(document, verdict, facts, snapshot)
    known: Outcome | None = snapshot.memory.get(key) if key is not None else None
    if known is not None:
        return known
    outcome = _decided(document, verdict, facts, snapshot)
    if key is not None:
        snapshot.memory.remember(key, outcome)
    return outcome


def _key(document: Document, verdict: Classification, facts: _Facts, snapshot: Snapshot) -> Hashable | None:
    """Everything a policy reads but the snapshot itself; None where it is too much to remember."""
    arrival = facts.arrival
    signature, caller = document.signature, arrival.caller
    if signature is None or caller.overrides:
        return None
    fast = _is_fast_path(arrival, snapshot)
    key = (signature, verdict, caller.tenant, caller.request_class, fast, facts.length)
    protection = snapshot.protection
    return key if protection.calm else (*key, fallback.admissions(facts.drawn, protection))


def _decided(document: Document, verdict: Classification, facts: _Facts, snapshot: Snapshot) -> Outcome:
    context, destination, parameter_set = _context(document, verdict, facts, snapshot)
    changes = pipeline.changes(context)
    decision = _decision(context, destination, changes, parameter_set)
    edits = document.edits(changes, Writing(destination.engine, context.profile.triton))
    about = metadata(decision, facts.length)
    audit = audit_tails(audit_records(decision, "", facts.arrival.target, 0.0, decision.changes))
    return Outcome(decision, edits, engine_headers(decision, about), about, audit)


def _in_force(snapshot: Snapshot, drawn: int) -> tuple[ParameterSet, str]:
    """The parameters this request gets, and their label: the safe ones while dynamic ones are off."""
    access = snapshot.protection.parameters
    if access is None or fallback.is_probe(drawn, access.probe_share):
        return snapshot.parameters, snapshot.parameter_set
    return snapshot.safe, snapshot.safe_set


def _context(
    document: Document, verdict: Classification, facts: _Facts, snapshot: Snapshot
) -> tuple[Context, pool.Destination, str]:
    request, registry, arrival = document.request, snapshot.registry, facts.arrival
    parameters, parameter_set = _in_force(snapshot, facts.drawn)
    profile = registry.profile(request.model)
    destination = pool.choose(registry, arrival.target, profile.pool, request.model)
    request_class = priority.request_class(
        arrival.caller, snapshot.tenants, parameters.scenarios.get(verdict.scenario)
    )
    protection = snapshot.protection
    if protection.pools:
        family = arrival.target.family
        destination = fallback.redirected(
            destination, family, request_class, registry, protection, drawn=facts.drawn
        )
    if protection.parameters is not None and parameters is snapshot.parameters:
        destination = replace(destination, probe=True)
    context = Context(
        request=request,
        caller=arrival.caller,
        classification=verdict,
        request_class=request_class,
        parameters=parameters,
        profile=profile,
        engine=destination.engine,
        engine_rules=registry.engine_rules(destination.engine),
        schedules_by_priority=destination.schedules_by_priority,
        lowest_latency=profile.lowest_latency or _is_fast_path(arrival, snapshot),
        respell_length=document.respells(destination.engine),
        lengths=protection.lengths if parameters is snapshot.parameters else {},
        degrade=snapshot.degrade if destination.pool in protection.degraded else None,
    )
    return context, destination, parameter_set


def _decision(
    context: Context, destination: pool.Destination, changes: tuple[Change, ...], parameter_set: str
) -> Decision:
    verdict = context.classification
    granted = _granted(context, changes)
    threshold = context.parameters.inference_params.max_tokens.streaming_threshold
    return Decision(
        tier=verdict.tier,
        scenario=verdict.scenario,
        confidence=verdict.confidence,
        source=verdict.source,
        rule=verdict.rule,
        request_class=context.request_class,
        tenant=context.caller.tenant,
        engine=destination.engine,
        pool=destination.pool,
        parameter_set=parameter_set,
        profile=context.profile.name,
        max_tokens=granted,
        continuation=granted is not None and granted > threshold,
        changes=changes,
        fallback=destination.fallback,
        probe=destination.probe,
        model=context.request.model,
    )


def _granted(context: Context, changes: tuple[Change, ...]) -> int | None:
    """The output length that leaves, in tokens; None where none does."""
    values = {change.field: change.after for change in changes}
    tokens = values.get(Field.MAX_TOKENS, context.request.given.get(Field.MAX_TOKENS, ABSENT))
    return None if tokens is ABSENT else int(tokens)


def _is_fast_path(arrival: Arrival, snapshot: Snapshot) -> bool:
    prefixes = snapshot.lowest_latency_paths
    return bool(prefixes) and arrival.path.startswith(prefixes)


def engine_headers(decision: Decision, about: Mapping[str, str]) -> tuple[tuple[str, bytes], ...]:
    """Request headers for engine and routes."""
    named = [
        ("x-llm-tier", about["tier"]),
        ("x-llm-scenario", about["scenario"]),
        ("x-llm-priority", about["class"]),
        ("x-llm-params", about["params"]),
        ("x-llm-tenant", about["tenant"]),
        ("x-llm-model", decision.profile),
    ]
    if decision.pool is not None:
        named.append(("x-llm-pool", decision.pool))
    if decision.continuation:
        named.append(("x-llm-continuation", "1"))
    if decision.fallback:
        named.append(("x-llm-fallback", decision.fallback))
    return tuple((name, value.encode()) for name, value in named)


def metadata(decision: Decision, length: str) -> dict[str, str]:
    """The same values for access logs (dynamic metadata, namespace `llm`). `length`: the bucket of the body's."""
    values = {
        "tier": decision.tier.value,
        "scenario": decision.scenario,
        "class": decision.request_class.value,
        "params": decision.parameter_set,
        "tenant": decision.tenant,
        "rule": decision.rule,
        "length": length,
    }
    if decision.fallback:
        values["fallback"] = decision.fallback
    if decision.probe:
        values["probe"] = "1"
    return values if decision.pool is None else values | {"pool": decision.pool}


def audit_records(
    decision: Decision, request_id: str, target: Target, now: float, changes: Iterable[Change]
) -> tuple[AuditRecord, ...]:
    """One record per changed field; `now` in seconds since the epoch."""
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
        for change in changes
    )


def _or_null(value: Value) -> Scalar | None:
    return None if value is ABSENT else value


_HEAD = b'{"ts":%.6f,"request_id":%b,'
_TAIL_AT = len(b'{"ts":0.0,"request_id":"",')


def audit_tails(records: Iterable[AuditRecord]) -> tuple[bytes, ...]:
    """What the JSON lines of records with time 0.0 and no request id have behind these two: what repeats."""
    return tuple(msgspec.json.encode(record)[_TAIL_AT:] + b"\n" for record in records)


def audit_lines(tails: tuple[bytes, ...], request_id: str, now: float) -> tuple[bytes, ...]:
    """Whole lines; `now` in seconds since the epoch."""
    head = _HEAD % (now, msgspec.json.encode(request_id))
    return tuple([head + tail for tail in tails])

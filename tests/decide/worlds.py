"""Small worlds to judge requests in, and the shortest way to ask one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import yaml

from extproc.decide.context import Context
from extproc.exchange import Exchange
from extproc.model.commands import Command, Continue, RecordDecision, RecordReject, Reject
from extproc.model.events import RequestBodyReceived, RequestHeadersReceived
from extproc.model.names import Dialect, Engine, Field, RequestClass, Tier
from extproc.model.values import AuditRecord, Caller, Change, Classification, Decision, InferenceRequest, Scalar
from extproc.settings import Secrets, load, merged, snapshot
from extproc.snapshot import Snapshot

TOKEN = b"caller-token"
NOW = 1_700_000_000.5

SMALL = """
parameter_set: small
classify:
  rules:
    - {name: order_number, pattern: '(?i)order #[0-9]{4,}', tier: strict, scenario: order_query}
    - {name: refund, pattern: '(?i)refund', tier: strict, scenario: returns}
    - {name: contract, pattern: '(?i)contract', tier: strict, scenario: legal}
    - {name: recommend, pattern: '(?i)recommend', tier: creative, scenario: recommendation}
    - {name: slogan, pattern: '(?i)slogan|标语', tier: creative, scenario: copywriting}
"""

TEXTS = {
    Tier.STRICT: "my bank says order #12345 failed",
    Tier.NORMAL: "what is the capital of France",
    Tier.CREATIVE: "a slogan for a coffee shop",
}
LEGAL_TEXT = "is this contract valid"
CHAT = "/v1/chat/completions"


@lru_cache(maxsize=256)
def world(over: str = "", tokens: tuple[bytes, ...] = (TOKEN,), keys: tuple[bytes, ...] = ()) -> Snapshot:
    """The shipped defaults under a few rules, and `over` (YAML) over both."""
    tree = merged(yaml.safe_load(SMALL), yaml.safe_load(over) or {})
    loaded = load(yaml.safe_dump(tree, allow_unicode=True))
    return snapshot(loaded, Secrets(tokens=list(tokens), tenant_keys=list(keys)), generation=1)


def pools(*engines: Engine, by_priority: bool = False) -> str:
    """YAML of one pool for each engine, named as it is."""
    listed = [
        {
            "name": engine.value,
            "engine": engine.value,
            "endpoints": ["http://127.0.0.1:8000"],
            "schedules_by_priority": by_priority,
        }
        for engine in engines
    ]
    return yaml.safe_dump({"pools": listed})


class Decided(NamedTuple):
    """A request that passed: what was decided, and what leaves."""

    decision: Decision
    audit: tuple[AuditRecord, ...]
    answer: Continue
    sent: bytes

    @property
    def json(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.sent)
        return document

    @property
    def changes(self) -> dict[Field, Change]:
        return {change.field: change for change in self.decision.changes}

    @property
    def headers(self) -> dict[str, bytes]:
        return dict((*self.answer.set_headers, *self.answer.body_headers))


def arrives(
    path: str = CHAT, headers: Sequence[tuple[str, bytes]] = (), attributes: Mapping[str, str] | None = None
) -> RequestHeadersReceived:
    """A POST whose body follows."""
    pairs = ((":method", b"POST"), (":path", path.encode()), *headers)
    return RequestHeadersReceived(pairs, False, attributes or {}, "BUFFERED")


def encoded(body: bytes | Mapping[str, Any]) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def ask(
    body: bytes | Mapping[str, Any],
    path: str = CHAT,
    headers: Sequence[tuple[str, bytes]] = (),
    *,
    over: str = "",
    attributes: Mapping[str, str] | None = None,
    keys: tuple[bytes, ...] = (),
) -> list[Command]:
    """The commands for one whole request, those of both phases."""
    exchange = Exchange()
    current = world(over, keys=keys)
    commands = exchange.handle(arrives(path, headers, attributes), current, now=NOW)
    if not any(isinstance(command, Reject) for command in commands):
        commands += exchange.handle(RequestBodyReceived(encoded(body), True), current, now=NOW)
    return commands


def decided(
    body: bytes | Mapping[str, Any],
    path: str = CHAT,
    headers: Sequence[tuple[str, bytes]] = (),
    *,
    over: str = "",
    trusted: bool = False,
    attributes: Mapping[str, str] | None = None,
    keys: tuple[bytes, ...] = (),
) -> Decided:
    """The decision about a request that must pass."""
    if trusted:
        headers = (*headers, ("x-caller-token", TOKEN))
    commands = ask(body, path, headers, over=over, attributes=attributes, keys=keys)
    record, answer = commands[-2:]
    assert isinstance(record, RecordDecision), commands
    assert isinstance(answer, Continue)
    sent = encoded(body) if answer.body is None else answer.body
    return Decided(record.decision, record.audit, answer, sent)


def refused(
    body: bytes | Mapping[str, Any], path: str = CHAT, headers: Sequence[tuple[str, bytes]] = (), *, over: str = ""
) -> tuple[int, dict[str, Any]]:
    """Status and error object of a request that must be refused."""
    commands = ask(body, path, headers, over=over)
    record, answer = commands[-2:]
    assert isinstance(record, RecordReject), commands
    assert isinstance(answer, Reject)
    assert (record.status, record.reason) == (answer.status, answer.reason)
    assert answer.headers == (("content-type", b"application/json"),)
    document = json.loads(answer.body)
    assert document.keys() == {"error"}
    error: dict[str, Any] = document["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert error["code"] == answer.reason
    return answer.status, error


def chat(text: str = TEXTS[Tier.NORMAL], **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **fields}


INSERTABLE = frozenset({Field.TEMPERATURE, Field.TOP_P, Field.STREAM, Field.PRIORITY, Field.MAX_TOKENS})


def context(
    given: Mapping[Field, Scalar] | None = None,
    *,
    over: str = "",
    tier: Tier = Tier.NORMAL,
    scenario: str = "general",
    overrides: Mapping[Field, Scalar] | None = None,
    model: str = "m",
    dialect: Dialect = Dialect.OPENAI_CHAT,
    engine: Engine = Engine.VLLM,
    request_class: RequestClass = RequestClass.NORMAL,
    by_priority: bool = False,
    lowest_latency: bool = False,
    respell: bool = False,
    unlimited: bool = False,
    insertable: frozenset[Field] = INSERTABLE,
) -> Context:
    """What a policy sees, without any body."""
    current = world(over)
    return Context(
        request=InferenceRequest(
            dialect=dialect,
            model=model,
            text="",
            given=given or {},
            insertable=insertable,
            unlimited_length=unlimited,
        ),
        caller=Caller(bool(overrides), "token" if overrides else "", "anonymous", None, None, overrides or {}),
        classification=Classification(tier, scenario, "rules", "r", 1.0),
        request_class=request_class,
        parameters=current.parameters,
        profile=current.registry.profile(model),
        engine=engine,
        engine_rules=current.registry.engine_rules(engine),
        schedules_by_priority=by_priority,
        lowest_latency=lowest_latency,
        respell_length=respell,
    )

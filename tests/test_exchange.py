"""Conversations of one stream: what Envoy says, and what it is answered."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from extproc.exchange import Exchange, State
from extproc.judge import audit_records, metadata
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
from extproc.model.names import Dialect, Engine, Family, Field, RequestClass, Tier
from extproc.model.values import ABSENT, Change, Decision, Target
from tests.decide.worlds import CHAT, NOW, TOKEN, arrives, ask, chat, decided, pools, refused, world

ANSWERS = (Continue, Reject, CloseStream)


class Conversation:
    """A stream, spoken in Envoy's words."""

    def __init__(self, over: str = "") -> None:
        self.exchange = Exchange()
        self.world = world(over)

    def says(self, event: Event) -> list[Command]:
        return self.exchange.handle(event, self.world, now=NOW)

    @property
    def state(self) -> State:
        return self.exchange.state


def headers(
    path: str = CHAT,
    *more: tuple[str, bytes],
    method: bytes = b"POST",
    end: bool = False,
    mode: str = "BUFFERED",
) -> RequestHeadersReceived:
    return RequestHeadersReceived(((":method", method), (":path", path.encode()), *more), end, {}, mode)


def body(text: bytes, end: bool = True) -> RequestBodyReceived:
    return RequestBodyReceived(text, end)


TRAILERS = RequestTrailersReceived()
PLAIN = b'{"model":"m","messages":[]}'


# --- conversations


def test_a_request_is_judged_in_its_body_phase() -> None:
    envoy = Conversation()
    assert envoy.says(headers()) == [Continue("request_headers")]
    assert envoy.state is State.AWAITING_BODY
    record, answer = envoy.says(body(PLAIN))
    assert isinstance(record, RecordDecision)
    params = envoy.world.parameter_set.encode()
    assert answer == Continue(
        "request_body",
        set_headers=(
            ("x-llm-tier", b"normal"),
            ("x-llm-scenario", b"general"),
            ("x-llm-priority", b"normal"),
            ("x-llm-params", params),
            ("x-llm-tenant", b"anonymous"),
            ("x-llm-model", b"default"),
            ("x-llm-continuation", b"1"),
        ),
        body_headers=(("content-length", b"62"),),
        body=b'{"model":"m","messages":[],"temperature":0.7,"max_tokens":256}',
        clear_route_cache=True,
        metadata={
            "tier": "normal",
            "scenario": "general",
            "class": "normal",
            "params": params.decode(),
            "tenant": "anonymous",
            "rule": "default",
            "length": "512",
        },
    )
    assert record.target == Target(Family.OPENAI, Dialect.OPENAI_CHAT)
    assert envoy.state is State.ENDED
    assert envoy.says(body(PLAIN)) == []


def test_a_body_nobody_changes_is_not_sent_back() -> None:
    envoy = Conversation()
    envoy.says(headers())
    _, answer = envoy.says(body(b'{"messages":[],"temperature":0.5,"max_tokens":10}'))
    assert isinstance(answer, Continue)
    assert answer.body is None
    assert answer.body_headers == ()
    assert answer.clear_route_cache is True


def test_trailers_after_the_body() -> None:
    envoy = Conversation()
    envoy.says(headers())
    record, _ = envoy.says(body(PLAIN, end=False))
    assert isinstance(record, RecordDecision)
    assert envoy.state is State.PASSING
    assert envoy.says(TRAILERS) == [Continue("request_trailers")]
    assert envoy.state is State.ENDED


def test_trailers_without_a_body() -> None:
    envoy = Conversation()
    envoy.says(headers())
    assert envoy.says(TRAILERS) == [Continue("request_trailers")]
    assert envoy.says(body(PLAIN)) == []


def test_a_get_passes() -> None:
    envoy = Conversation(pools(Engine.VLLM))
    record, answer = envoy.says(headers("/v1/models", method=b"GET", end=True, mode=""))
    assert record == RecordPass("no_dialect")
    assert answer == Continue(
        "request_headers",
        set_headers=(("x-llm-priority", b"normal"), ("x-llm-tenant", b"anonymous"), ("x-llm-pool", b"vllm")),
        clear_route_cache=True,
        metadata={"class": "normal", "tenant": "anonymous", "passed": "no_dialect"},
    )
    assert envoy.state is State.ENDED
    assert envoy.says(TRAILERS) == []


PASSES: list[tuple[str, RequestHeadersReceived, str]] = [
    ("unread_path", headers("/v1/audio/speech"), "no_dialect"),
    ("get_on_a_served_path", headers(method=b"GET", end=True), "method"),
    ("head_on_a_served_path", headers(method=b"HEAD", end=True), "method"),
    ("put_on_a_served_path", headers(method=b"PUT"), "method"),
    ("no_method", RequestHeadersReceived(((":path", CHAT.encode()),), False, {}), "method"),
    ("two_methods", headers(CHAT, (":method", b"POST")), "method"),
    ("post_without_body", headers(end=True), "no_body"),
    ("post_with_length_zero", headers(CHAT, ("content-length", b"0"), end=True), "no_body"),
    ("body_not_sent", headers(mode="NONE"), "body_not_sent"),
    ("no_path", RequestHeadersReceived(((":method", b"POST"),), False, {}), "no_dialect"),
    ("two_paths", headers(CHAT, (":path", b"/x")), "no_dialect"),
    ("odd_path", headers("/\x00\x7f"), "no_dialect"),
    ("nothing", RequestHeadersReceived((), True, {}), "no_dialect"),
]


@pytest.mark.parametrize(("first", "reason"), [case[1:] for case in PASSES], ids=[case[0] for case in PASSES])
def test_what_passes_unread(first: RequestHeadersReceived, reason: str) -> None:
    envoy = Conversation()
    record, answer = envoy.says(first)
    assert record == RecordPass(reason)
    assert isinstance(answer, Continue)
    assert (answer.phase, answer.body, answer.clear_route_cache) == ("request_headers", None, True)
    assert answer.stream_body is not first.end_of_stream
    assert answer.metadata == {"class": "normal", "tenant": "anonymous", "passed": reason}
    if first.end_of_stream:
        assert envoy.state is State.ENDED
        return
    assert envoy.says(body(b"\xff" * 100, end=False)) == [Continue("request_body")]
    assert envoy.says(body(b"", end=False)) == [Continue("request_body")]
    assert envoy.says(body(b"end")) == [Continue("request_body")]
    assert envoy.state is State.ENDED


def test_an_empty_body_passes() -> None:
    envoy = Conversation()
    envoy.says(headers())
    record, answer = envoy.says(body(b""))
    assert record == RecordPass("no_body")
    assert isinstance(answer, Continue)
    assert (answer.phase, answer.body, answer.stream_body) == ("request_body", None, False)
    assert envoy.state is State.ENDED


@pytest.mark.parametrize("mode", ["STREAMED", "BUFFERED_PARTIAL", "FULL_DUPLEX_STREAMED", "GRPC"])
def test_a_body_in_pieces_cannot_be_judged(mode: str) -> None:
    envoy = Conversation()
    assert envoy.says(headers(mode=mode)) == [CloseStream(f"request_body_mode {mode}, allowed: BUFFERED")]
    assert envoy.state is State.CLOSED
    assert Conversation().says(headers("/v1/models", mode=mode))[0] == RecordPass("no_dialect")


@pytest.mark.parametrize("mode", ["", "BUFFERED"])
def test_a_whole_body_can(mode: str) -> None:
    assert Conversation().says(headers(mode=mode)) == [Continue("request_headers")]


OUT_OF_ORDER: list[tuple[str, list[Event], str]] = [
    ("body_first", [body(PLAIN)], "RequestBodyReceived in state start"),
    ("trailers_first", [TRAILERS], "RequestTrailersReceived in state start"),
    ("empty_first", [EmptyReceived()], "a message without a request"),
    ("two_headers", [headers(), headers()], "RequestHeadersReceived in state awaiting_body"),
    (
        "headers_in_mid_body",
        [headers("/x"), body(b"a", end=False), headers()],
        "RequestHeadersReceived in state passing",
    ),
    ("empty_in_between", [headers(), EmptyReceived()], "a message without a request"),
]


@pytest.mark.parametrize(("events", "reason"), [c[1:] for c in OUT_OF_ORDER], ids=[c[0] for c in OUT_OF_ORDER])
def test_messages_out_of_order_end_the_stream(events: list[Event], reason: str) -> None:
    envoy = Conversation()
    for event in events[:-1]:
        assert envoy.says(event)
    assert envoy.says(events[-1]) == [CloseStream(reason)]
    assert envoy.state is State.CLOSED
    for event in (headers(), body(PLAIN), TRAILERS, EmptyReceived(), ResponseReceived("response_headers")):
        assert envoy.says(event) == []


@pytest.mark.parametrize(
    "late",
    [headers(), body(PLAIN), body(b"", end=False), TRAILERS, EmptyReceived()],
    ids=lambda e: type(e).__name__,
)
def test_nothing_is_said_after_the_end(late: Event) -> None:
    envoy = Conversation()
    envoy.says(headers())
    envoy.says(body(PLAIN))
    assert envoy.says(late) == []
    assert envoy.state is State.ENDED


@pytest.mark.parametrize("phase", ["response_headers", "response_body", "response_trailers"])
def test_responses_are_answered_whenever_they_come(phase: str) -> None:
    envoy = Conversation()
    response = ResponseReceived(phase)
    assert envoy.says(response) == [Continue(phase)]
    envoy.says(headers())
    assert envoy.says(response) == [Continue(phase)]
    assert len(envoy.says(body(PLAIN))) == 2
    assert envoy.says(response) == [Continue(phase)]


def test_a_rejection_is_the_last_word() -> None:
    envoy = Conversation()
    envoy.says(headers())
    record, answer = envoy.says(body(b"[]"))
    assert record == RecordReject("invalid_json", 400)
    assert answer == Reject(
        400,
        "invalid_json",
        (("content-type", b"application/json"),),
        b'{"error":{"message":"The body is not valid JSON: not a JSON object.","type":"invalid_request_error",'
        b'"param":null,"code":"invalid_json"}}',
    )
    assert envoy.state is State.CLOSED
    for event in (headers(), body(PLAIN), TRAILERS, EmptyReceived(), ResponseReceived("response_headers")):
        assert envoy.says(event) == []


# --- size and encoding

SMALL_LIMIT = "limits: {max_body_bytes: 1024}"


@pytest.mark.parametrize(
    ("declared", "refusal"),
    [
        (b"1024", False),
        (b"1025", True),
        (b"99999999999999999999", True),
        (b"9" * 5000, True),
        (b"0", False),
        (b"", False),
        (b"-5", False),
        (b"1e9", False),
        (b"\xb2", False),
        (b"12 34", False),
    ],
)
def test_a_declared_length_over_the_limit(declared: bytes, refusal: bool) -> None:
    commands = Conversation(SMALL_LIMIT).says(headers(CHAT, ("content-length", declared)))
    if refusal:
        assert commands[0] == RecordReject("body_too_large", 413)
        assert isinstance(commands[1], Reject)
        assert commands[1].status == 413
        assert b"1024" in commands[1].body
    else:
        assert commands == [Continue("request_headers")]


@pytest.mark.parametrize(("size", "status"), [(1023, 200), (1024, 200), (1025, 413), (5000, 413)])
def test_a_body_over_the_limit(size: int, status: int) -> None:
    envoy = Conversation(SMALL_LIMIT)
    envoy.says(headers())
    filler = b'{"x":"' + b"a" * (size - 8) + b'"}'
    assert len(filler) == size
    answer = envoy.says(body(filler))[-1]
    assert (answer.status if isinstance(answer, Reject) else 200) == status


def test_an_unread_body_has_no_limit_here() -> None:
    envoy = Conversation(SMALL_LIMIT)
    assert envoy.says(headers("/v1/audio/x", ("content-length", b"99999")))[0] == RecordPass("no_dialect")
    assert envoy.says(body(b"x" * 5000)) == [Continue("request_body")]


@pytest.mark.parametrize(
    "value", [b"gzip", b"zstd", b"br", b"deflate", b"GZIP", b"identity, gzip", b"x", b"", b"\xff"]
)
def test_an_encoded_body_is_refused(value: bytes) -> None:
    first = headers(CHAT, ("content-encoding", value))
    record, answer = Conversation().says(first)
    assert record == RecordReject("encoded_body", 415)
    assert isinstance(answer, Reject)
    assert json.loads(answer.body)["error"]["param"] == "content-encoding"


@pytest.mark.parametrize("value", [b"identity", b"Identity", b" identity "])
def test_identity_is_no_encoding(value: bytes) -> None:
    assert Conversation().says(headers(CHAT, ("content-encoding", value))) == [Continue("request_headers")]


def test_two_encodings_are_refused_even_when_both_are_none() -> None:
    first = headers(CHAT, ("content-encoding", b"identity"), ("content-encoding", b"identity"))
    assert Conversation().says(first)[0] == RecordReject("encoded_body", 415)


def test_an_encoded_body_passes_where_configured() -> None:
    envoy = Conversation("encoded_bodies: pass")
    record, answer = envoy.says(headers(CHAT, ("content-encoding", b"gzip")))
    assert record == RecordPass("encoded_body")
    assert isinstance(answer, Continue)
    assert answer.stream_body is True
    assert Conversation("encoded_bodies: pass").says(headers(CHAT, ("content-encoding", b"identity"))) == [
        Continue("request_headers")
    ]


@pytest.mark.parametrize("content_type", [b"text/plain", b"application/octet-stream", b"", b"\xff"])
def test_the_content_decides_whatever_its_type_says(content_type: bytes) -> None:
    found = decided(PLAIN, headers=[("content-type", content_type)])
    assert found.json["max_tokens"] == 256


# --- what is in force


def test_a_stream_keeps_the_world_it_started_in() -> None:
    exchange = Exchange()
    before, after = world(), world("inference_params: {max_tokens: {default: 11}}\nparameter_set: later")
    exchange.handle(headers(), before, now=NOW)
    record, answer = exchange.handle(body(PLAIN), after, now=NOW)
    assert isinstance(record, RecordDecision)
    assert isinstance(answer, Continue)
    assert record.decision.max_tokens == 256
    assert record.decision.parameter_set == before.parameter_set


def test_two_streams_with_one_request_id_know_nothing_of_each_other() -> None:
    one, other = Conversation(), Conversation()
    both = headers(CHAT, ("x-request-id", b"same"))
    one.says(both)
    other.says(both)
    first = one.says(body(b'{"max_tokens":5,"messages":[]}'))[0]
    second = other.says(body(b'{"max_tokens":6,"messages":[]}'))[0]
    assert isinstance(first, RecordDecision)
    assert isinstance(second, RecordDecision)
    assert (first.decision.max_tokens, second.decision.max_tokens) == (5, 6)


CLAIMS = (
    ("x-llm-tier", b"creative"),
    ("x-llm-pool", b"evil"),
    ("x-llm-priority", b"critical"),
    ("x-llm-tenant", b"root"),
    ("x-llm-model", b"cheap"),
    ("x-request-class", b"critical"),
    ("x-tenant", b"root"),
    ("x-business-label", b"legal"),
)


@pytest.mark.parametrize(
    "proof",
    [(), (("x-caller-token", b"wrong"),), (("x-caller-token", TOKEN), ("x-caller-token", TOKEN))],
    ids=["none", "wrong", "twice"],
)
def test_a_clients_own_words_are_not_believed(proof: tuple[tuple[str, bytes], ...]) -> None:
    found = decided(chat(), headers=[*CLAIMS, *CLAIMS, *proof], over=pools(Engine.VLLM))
    assert {name: value for name, value in found.headers.items() if name.startswith("x-llm-")} == {
        "x-llm-tier": b"normal",
        "x-llm-scenario": b"general",
        "x-llm-priority": b"normal",
        "x-llm-params": found.decision.parameter_set.encode(),
        "x-llm-tenant": b"anonymous",
        "x-llm-model": b"default",
        "x-llm-pool": b"vllm",
        "x-llm-continuation": b"1",
    }


def test_a_trusted_callers_words_are() -> None:
    found = decided(chat(), headers=[*CLAIMS], over=pools(Engine.VLLM), trusted=True)
    assert (found.decision.tier, found.decision.scenario, found.decision.source) == ("strict", "legal", "label")
    assert (found.headers["x-llm-tenant"], found.headers["x-llm-priority"]) == (b"root", b"critical")
    assert found.headers["x-llm-pool"] == b"vllm"


def test_a_trusted_caller_ranks_what_passes_unread() -> None:
    envoy = Conversation()
    proof = (("x-caller-token", TOKEN), ("x-request-class", b"best-effort"), ("x-tenant", b"shop"))
    _, answer = envoy.says(headers("/v1/models", *proof, method=b"GET", end=True))
    assert isinstance(answer, Continue)
    assert dict(answer.set_headers) == {"x-llm-priority": b"best-effort", "x-llm-tenant": b"shop"}


def test_a_trusted_callers_mistake_is_refused_in_the_headers_phase() -> None:
    envoy = Conversation()
    record, answer = envoy.says(headers(CHAT, ("x-caller-token", TOKEN), ("x-param-max-tokens", b"many")))
    assert record == RecordReject("invalid_header", 400)
    assert isinstance(answer, Reject)
    assert json.loads(answer.body)["error"]["param"] == "x-param-max-tokens"
    assert envoy.state is State.CLOSED


@pytest.mark.parametrize(
    "name", ["x-request-id", "x-tenant", "authorization", "x-business-label", "cookie", ":path"]
)
def test_odd_bytes_in_headers_are_no_crash(name: str) -> None:
    commands = Conversation().says(headers(CHAT, (name, b"\xff\xfe\x00"), end=True))
    assert isinstance(commands[-1], Continue)


def test_the_fastest_path_is_told_by_its_prefix() -> None:
    over = "inference_params: {lowest_latency: {paths: [/v1/completions, /v2/models/fast]}}"
    fast = decided({"text_input": "x"}, "/v2/models/fast-1/generate?x=1", over=over)
    assert fast.json["parameters"]["temperature"] == 0
    assert (
        decided({"text_input": "x"}, "/v2/models/slow/generate", over=over).json["parameters"]["temperature"] == 0.7
    )


# --- records


def test_one_record_for_each_changed_field() -> None:
    found = decided(
        chat("order #12345", temperature=0.9, max_tokens=10, top_k=5),
        headers=[("x-request-id", b"req-1"), ("authorization", b"Bearer shop-key")],
        keys=(b"shop-key",),
    )
    common = {
        "ts": NOW,
        "request_id": "req-1",
        "tenant": found.decision.tenant,
        "dialect": "openai_chat",
        "tier": "strict",
        "scenario": "order_query",
        "confidence": 1.0,
        "parameter_set": found.decision.parameter_set,
    }
    assert [msgspec.to_builtins(record) for record in found.audit] == [
        common | {"field": "temperature", "from": 0.9, "to": 0.3, "rule": "tier.strict", "reason": "capped at 0.3"},
        common
        | {
            "field": "top_p",
            "from": None,
            "to": 0.85,
            "rule": "coupling.line",
            "reason": "temperature was lowered to 0.3",
        },
    ]
    assert found.decision.tenant.startswith("key-")


def test_nothing_changed_nothing_recorded() -> None:
    found = decided(chat(temperature=0.1, max_tokens=3))
    assert (found.audit, found.decision.changes) == ((), ())


DECISION = Decision(
    tier=Tier.STRICT,
    scenario="s",
    confidence=0.5,
    source="rules",
    rule="r",
    request_class=RequestClass.CRITICAL,
    tenant="t",
    engine=Engine.VLLM,
    pool=None,
    parameter_set="p@1",
    profile="default",
    max_tokens=None,
    continuation=False,
    changes=(Change(Field.TOP_K, 5, ABSENT, "rule", "why"), Change(Field.STREAM, ABSENT, False, "rule", "why")),
)


def test_absence_is_null_in_the_audit() -> None:
    removed, added = audit_records(DECISION, "id", Target(Family.OPENAI, None), 1.0, DECISION.changes)
    assert (removed.from_, removed.to, removed.dialect) == (5, None, "")
    assert (added.from_, added.to) == (None, False)


def test_metadata_names_the_pool_where_there_is_one() -> None:
    plain = {"tier": "strict", "scenario": "s", "class": "critical", "params": "p@1", "tenant": "t", "rule": "r"}
    plain |= {"length": "2048"}
    assert metadata(DECISION, "2048") == plain
    assert metadata(msgspec.structs.replace(DECISION, pool="a"), "2048") == plain | {"pool": "a"}


MARKER = "MARKER"
SAYS_IT: list[tuple[str, Any]] = [
    ("prompt", chat(MARKER)),
    ("unread_field", chat(user=MARKER)),
    ("top_k", chat(temperature=0, top_k=MARKER)),
    ("min_p", chat(temperature=0, min_p=MARKER)),
    ("mirostat", chat(temperature=0, mirostat=MARKER)),
    ("priority", chat(priority=MARKER)),
    ("model", chat() | {"model": MARKER}),
]


@pytest.mark.parametrize("request_body", [case[1] for case in SAYS_IT], ids=[case[0] for case in SAYS_IT])
def test_no_text_of_a_request_is_recorded(request_body: dict[str, Any]) -> None:
    found = decided(request_body, over=pools(Engine.VLLM, by_priority=True))
    assert MARKER not in repr(found.audit)
    assert MARKER.encode() not in msgspec.json.encode(found.audit)
    assert MARKER not in repr(found.answer.set_headers)
    assert MARKER not in repr(found.answer.metadata)


@pytest.mark.parametrize("request_id", [b"\xff\xfe", "中".encode(), b"a\x80", b"", b"x" * 200], ids=repr)
def test_every_record_can_be_written_whatever_the_request_id(request_id: bytes) -> None:
    found = decided(chat(), headers=[("x-request-id", request_id)])
    assert len(found.audit) == 2
    for record in found.audit:
        assert json.loads(msgspec.json.encode(record))["field"] in ("temperature", "max_tokens")


def test_two_request_ids_are_none() -> None:
    found = decided(chat(), headers=[("x-request-id", b"a"), ("x-request-id", b"b")])
    assert {record.request_id for record in found.audit} == {""}


def test_a_refusal_names_no_content() -> None:
    for text in (b'{"a":"MARKER', b'{"temperature":"MARKER"}', b'{"model":["MARKER"]}', b'{"max_tokens":"MARKER"}'):
        _, error = refused(text)
        assert MARKER not in json.dumps(error)


def test_the_pool_that_does_not_speak_is_refused_in_the_body_phase() -> None:
    commands = ask(chat(), over=pools(Engine.TRITON))
    assert commands[0] == Continue("request_headers")
    assert commands[1] == RecordReject("dialect_not_spoken", 400)


# --- every order of messages

EVENTS: list[Event] = [
    headers(),
    headers(end=True),
    headers("/v1/models", method=b"GET", end=True),
    headers("/v1/audio/x"),
    headers(mode="STREAMED"),
    headers(CHAT, ("content-encoding", b"gzip")),
    headers(CHAT, ("content-length", b"999999999999")),
    headers("/v2/models/m/infer", ("inference-header-content-length", b"5")),
    headers("/completion"),
    body(PLAIN),
    body(PLAIN, end=False),
    body(b""),
    body(b"", end=False),
    body(b"\xff"),
    body(b'{"temperature":"x"}'),
    TRAILERS,
    EmptyReceived(),
    ResponseReceived("response_headers"),
    ResponseReceived("response_body"),
    ResponseReceived("response_trailers"),
]
OWN_PHASE = {
    RequestHeadersReceived: "request_headers",
    RequestBodyReceived: "request_body",
    RequestTrailersReceived: "request_trailers",
}


class AnyConversation(RuleBasedStateMachine):
    """Whatever Envoy says in whatever order: one answer at most, none after the end."""

    def __init__(self) -> None:
        super().__init__()
        self.envoy = Conversation(pools(*Engine, by_priority=True))
        self.decisions = 0
        self.over = False

    @rule(event=st.sampled_from(EVENTS))
    def envoy_says(self, event: Event) -> None:
        before = self.envoy.state
        commands = self.envoy.says(event)
        answers = [command for command in commands if isinstance(command, ANSWERS)]
        records = [command for command in commands if not isinstance(command, ANSWERS)]
        assert len(answers) <= 1
        assert len(records) <= 1
        assert not commands or isinstance(commands[-1], ANSWERS), "the answer comes last"
        if before is State.CLOSED:
            assert commands == []
        elif before is State.ENDED:
            assert all(isinstance(event, ResponseReceived) for _ in commands)
        else:
            assert len(answers) == 1
        for answer in answers:
            if isinstance(answer, Continue):
                expected = event.phase if isinstance(event, ResponseReceived) else OWN_PHASE[type(event)]
                assert answer.phase == expected
            else:
                assert self.envoy.state is State.CLOSED
        self.decisions += sum(isinstance(command, RecordDecision) for command in records)

    @invariant()
    def at_most_one_decision(self) -> None:
        assert self.decisions <= 1

    @invariant()
    def what_is_over_stays_over(self) -> None:
        if self.over:
            assert self.envoy.state in (State.ENDED, State.CLOSED)
        self.over = self.over or self.envoy.state in (State.ENDED, State.CLOSED)


AnyConversation.TestCase.settings = settings(max_examples=150, stateful_step_count=8, deadline=None)
TestAnyConversation = AnyConversation.TestCase


@pytest.mark.parametrize("first", EVENTS, ids=range(len(EVENTS)))
@pytest.mark.parametrize("second", EVENTS, ids=range(len(EVENTS)))
def test_every_pair_of_messages(first: Event, second: Event) -> None:
    envoy = Conversation()
    answered = [envoy.says(first), envoy.says(second)]
    for commands in answered:
        assert sum(isinstance(command, ANSWERS) for command in commands) <= 1
    assert answered[0], "the first message is always answered"


def test_arrives_is_what_this_file_says_by_hand() -> None:
    assert arrives() == headers()

"""One exchange: the recorded streams cut anywhere, and every way an answer ends or is not read."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.model.names import Dialect
from extproc.model.telemetry import UsageSample
from extproc.request import paths
from extproc.usage.observation import Observation, unread_reason
from extproc.usage.seen import AnswerSeen, Outcome, PieceSeen, RequestSeen, Skip, TrailersSeen, Verdict
from tests.usage.streams import CHAT, STREAMS, folder, recorded, told

LIMIT = 1 << 16
SSE = AnswerSeen(200, "text/event-stream", "", False)
JSON = AnswerSeen(200, "application/json", "", False)


def watch(path: str, pieces: list[bytes], answer: AnswerSeen = SSE, limit: int = LIMIT) -> Verdict:
    """The verdict on an answer in these pieces, the last one its end."""
    observation = Observation(limit)
    assert observation.handle(RequestSeen(dialect=paths.target(path).dialect)) is None
    assert observation.handle(answer) is None
    for piece in pieces[:-1]:
        assert observation.handle(PieceSeen(piece, False)) is None
    verdict = observation.handle(PieceSeen(pieces[-1], True))
    assert verdict is not None
    return verdict


def sampled(verdict: Verdict) -> UsageSample:
    assert verdict.sample is not None
    return verdict.sample


# --- the recorded streams


def test_every_recorded_stream_is_in_the_table() -> None:
    assert sorted(path.name for path in folder().glob("*.sse")) == sorted(STREAMS)


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_cut_at_every_byte_tells_the_same(name: str) -> None:
    path, expected = STREAMS[name]
    stream = recorded(name)
    for at in range(len(stream) + 1):
        verdict = watch(path, [stream[:at], stream[at:]])
        assert (at, told(sampled(verdict))) == (at, expected)
        assert verdict.outcome is (Outcome.ESTIMATED if expected[-1] else Outcome.READ)


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_byte_by_byte_tells_the_same(name: str) -> None:
    path, expected = STREAMS[name]
    pieces = [bytes([byte]) for byte in recorded(name)]
    assert told(sampled(watch(path, pieces))) == expected


@pytest.mark.parametrize("end", [b"\r\n", b"\r"])
@pytest.mark.parametrize("name", STREAMS)
def test_every_line_end_tells_the_same_wherever_it_is_cut(name: str, end: bytes) -> None:
    path, expected = STREAMS[name]
    stream = recorded(name).replace(b"\r\n", b"\n").replace(b"\n", end)
    for at in range(len(stream) + 1):
        assert (at, told(sampled(watch(path, [stream[:at], stream[at:]])))) == (at, expected)


@given(st.data())
def test_many_cuts_tell_the_same(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(STREAMS)))
    path, expected = STREAMS[name]
    stream = recorded(name)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert told(sampled(watch(path, pieces))) == expected


@given(st.data())
def test_cuts_change_nothing_of_events_too_long_to_hold(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(STREAMS)))
    stream = recorded(name)
    limit = data.draw(st.integers(1, 300))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    path = STREAMS[name][0]
    assert watch(path, pieces, limit=limit) == watch(path, [stream], limit=limit)


# --- JSON answers

ANSWERS = [
    (
        CHAT,
        {
            "model": "m",
            "choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
        },
        ("m", 3, 2, "stop", False),
    ),
    (
        "/v1/embeddings",
        {"model": "e", "data": [{"embedding": [0.1]}], "usage": {"prompt_tokens": 3, "total_tokens": 3}},
        ("e", 3, 0, "", False),
    ),
    (
        "/v1/responses",
        {
            "object": "response",
            "status": "incomplete",
            "incomplete_details": {"reason": "max_output_tokens"},
            "model": "m",
            "usage": {"input_tokens": 5, "output_tokens": 9},
        },
        ("m", 5, 9, "length", False),
    ),
    (
        "/v1/messages",
        {
            "type": "message",
            "model": "c",
            "stop_reason": "max_tokens",
            "usage": {"input_tokens": 5, "cache_read_input_tokens": 7, "output_tokens": 9},
        },
        ("c", 12, 9, "length", False),
    ),
    (
        "/completion",
        {"stop": True, "stop_type": "limit", "model": "l", "tokens_predicted": 4, "tokens_evaluated": 2},
        ("l", 2, 4, "length", False),
    ),
]


@pytest.mark.parametrize(("path", "answer", "expected"), ANSWERS)
def test_a_json_answer_cut_anywhere(path: str, answer: object, expected: object) -> None:
    body = json.dumps(answer).encode()
    for at in range(len(body) + 1):
        verdict = watch(path, [body[:at], body[at:]], JSON)
        assert told(sampled(verdict)) == expected
        assert verdict.outcome is Outcome.READ


@pytest.mark.parametrize(("path", "answer", "expected"), ANSWERS)
def test_a_json_answer_too_long_to_hold_is_read_at_its_ends(
    path: str, answer: dict[str, object], expected: object
) -> None:
    body = json.dumps({"model": answer["model"], "echo": '\\"' * 5000} | answer).encode()
    assert told(sampled(watch(path, [body], JSON, limit=400))) == expected


def test_a_long_answer_without_usage_is_counted_as_such() -> None:
    body = json.dumps({"choices": [{"message": {"content": "x" * 9000}}]}).encode()
    assert watch(CHAT, [body], JSON, limit=400) == Verdict(Outcome.SKIPPED, Skip.TOO_LARGE)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"usage": "none"}',
        b'{"usage":{"completion_tokens":-1}}',
        b"[" * 9000,
    ],
)
def test_an_answer_without_usage_is_skipped(body: bytes) -> None:
    assert watch(CHAT, [body], JSON) == Verdict(Outcome.SKIPPED, Skip.NO_USAGE)


@pytest.mark.parametrize(
    "body", [b"", b"\n\n\n", b": nothing\n\n", b"data: [DONE]\n\n", b"data: {\n\n", b"\xff" * 99]
)
def test_a_stream_that_tells_nothing_is_skipped(body: bytes) -> None:
    assert watch(CHAT, [body]) == Verdict(Outcome.SKIPPED, Skip.NO_USAGE)


# --- what is not read


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (SSE, None),
        (JSON, None),
        (AnswerSeen(201, "application/json", "identity", False), None),
        (AnswerSeen(400, "application/json", "", False), Skip.STATUS),
        (AnswerSeen(0, "", "", True), Skip.STATUS),
        (AnswerSeen(302, "application/json", "", False), Skip.STATUS),
        (AnswerSeen(204, "", "", True), Skip.NO_BODY),
        (AnswerSeen(200, "application/json", "gzip", False), Skip.ENCODED),
        (AnswerSeen(200, "application/octet-stream", "", False), Skip.CONTENT_TYPE),
        (AnswerSeen(200, "", "", False), Skip.CONTENT_TYPE),
    ],
)
def test_which_answers_are_read(answer: AnswerSeen, why: Skip | None) -> None:
    assert unread_reason(answer) is why
    observation = Observation(LIMIT)
    observation.handle(RequestSeen(dialect=Dialect.OPENAI_CHAT))
    assert observation.handle(answer) == (None if why is None else Verdict(Outcome.SKIPPED, why))


def test_a_gzip_answer_is_never_taken_for_its_content() -> None:
    body = gzip.compress(json.dumps(ANSWERS[0][1]).encode())
    assert watch(CHAT, [body], JSON) == Verdict(Outcome.SKIPPED, Skip.NO_USAGE)  # without the header that says so


@pytest.mark.parametrize(
    ("path", "why"),
    [("/v1/models", Skip.NO_DIALECT), ("/v2/models/m/infer", Skip.NO_TOKENS), ("/v2/health", Skip.NO_DIALECT)],
)
def test_requests_whose_answers_have_no_tokens(path: str, why: Skip) -> None:
    request = RequestSeen(dialect=paths.target(path).dialect)
    assert Observation(LIMIT).handle(request) == Verdict(Outcome.SKIPPED, why)


def test_an_answer_to_a_request_never_seen() -> None:
    assert Observation(LIMIT).handle(SSE) == Verdict(Outcome.SKIPPED, Skip.NO_REQUEST)


@pytest.mark.parametrize("seen", [PieceSeen(b"{}", True), TrailersSeen()])
def test_a_body_before_its_headers(seen: PieceSeen | TrailersSeen) -> None:
    assert Observation(LIMIT).handle(seen) == Verdict(Outcome.SKIPPED, Skip.PROTOCOL)


# --- how it ends


def begun(stream: bytes, answer: AnswerSeen = SSE) -> Observation:
    observation = Observation(LIMIT)
    observation.handle(RequestSeen(dialect=Dialect.OPENAI_CHAT, tenant="shop"))
    observation.handle(answer)
    observation.handle(PieceSeen(stream, False))
    return observation


SAID = b'data: {"model":"m","choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
USED = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: {"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n'


def test_an_aborted_answer_tells_what_was_seen_of_it() -> None:
    verdict = begun(SAID * 3 + SAID[:40]).broken_off()
    assert verdict.outcome is Outcome.ABORTED
    assert told(sampled(verdict)) == ("m", None, 3, "", True)
    assert sampled(verdict).tenant == "shop"


def test_a_client_that_leaves_after_the_usage_is_no_abort() -> None:
    verdict = begun(SAID + USED).broken_off()
    assert verdict.outcome is Outcome.READ
    assert told(sampled(verdict)) == ("m", 1, 2, "stop", False)


def test_nor_is_one_that_leaves_after_the_end_without_usage() -> None:
    verdict = begun(
        SAID + b'data: {"choices":[{"delta":{},"finish_reason":"length"}]}\n\ndata: [DONE]'
    ).broken_off()
    assert verdict.outcome is Outcome.ESTIMATED
    assert told(sampled(verdict)) == ("m", None, 1, "length", True)


def test_usage_so_far_is_no_end() -> None:
    so_far = SAID.replace(b'{"model"', b'{"usage":{"prompt_tokens":1,"completion_tokens":1},"model"')
    verdict = begun(so_far).broken_off()
    assert verdict.outcome is Outcome.ABORTED
    assert told(sampled(verdict)) == ("m", 1, 1, "", False)


@pytest.mark.parametrize("observation", [Observation(LIMIT), begun(b""), begun(b'{"usage"', JSON)])
def test_an_abort_with_nothing_seen_has_no_sample(observation: Observation) -> None:
    assert observation.broken_off() == Verdict(Outcome.ABORTED)


def test_trailers_end_an_answer() -> None:
    verdict = begun(SAID + USED).handle(TrailersSeen())
    assert verdict is not None
    assert told(sampled(verdict)) == ("m", 1, 2, "stop", False)


def test_the_decision_s_words_come_with_the_sample() -> None:
    observation = Observation(LIMIT)
    words = {"model": "named", "scenario": "payment", "tier": "strict", "tenant": "shop", "pool": "p"}
    observation.handle(RequestSeen(dialect=Dialect.OPENAI_CHAT, **words))
    observation.handle(SSE)
    verdict = observation.handle(PieceSeen(SAID + USED, True))
    assert verdict is not None
    sample = sampled(verdict)
    assert {name: getattr(sample, name) for name in words} == words


def test_memory_is_bounded_whatever_the_answer() -> None:
    """A line without an end, an event without an end, one JSON value without an end."""
    for answer, piece in (
        (SSE, b"data: " + b"x" * 999),
        (SSE, b"data: x\n" * 99),
        (SSE, b"x" * 999),
        (JSON, b"[" * 999),
    ):
        observation = begun(b"", answer)
        for _ in range(2000):
            observation.handle(PieceSeen(piece, False))
        assert held_bytes(observation._answer) <= LIMIT + 1024 + 64


def held_bytes(value: object) -> int:
    """All byte strings reachable through slots and attributes."""
    if isinstance(value, bytes | bytearray):
        return len(value)
    names = [*getattr(type(value), "__slots__", ()), *getattr(value, "__dict__", {})]
    return sum(held_bytes(getattr(value, name)) for name in names if type(value).__module__.startswith("extproc"))

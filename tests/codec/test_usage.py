"""Messages of the observing filter to what was seen."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError

from extproc.codec.usage import seen
from extproc.codec.wire import ext_proc_pb2 as pb
from extproc.model.names import Dialect
from extproc.usage.seen import AnswerSeen, PieceSeen, RequestSeen, TrailersSeen


def headers(kind: str, pairs: dict[str, str], end: bool = False) -> bytes:
    message = pb.ProcessingRequest()
    part = getattr(message, kind)
    for name, value in pairs.items():
        part.headers.headers.add(key=name, raw_value=value.encode())
    part.end_of_stream = end
    part.SetInParent()
    return bytes(message.SerializeToString())


def test_a_request_with_what_the_decision_wrote() -> None:
    words = {"model": "m", "scenario": "s", "tier": "t", "tenant": "größe", "pool": "p"}
    written = {f"x-llm-{name}": value for name, value in words.items()}
    message = headers("request_headers", {":path": "/v1/chat/completions?a=b", **written})
    assert seen(message) == RequestSeen(dialect=Dialect.OPENAI_CHAT, **words)


def test_a_request_nobody_judged() -> None:
    message = headers("request_headers", {":path": "/v2/models/a%20b/generate_stream"})
    assert seen(message) == RequestSeen(dialect=Dialect.TRITON_GENERATE, model="a b")
    assert seen(headers("request_headers", {})) == RequestSeen(dialect=None)


def test_an_answer() -> None:
    told = {":status": "200", "content-type": "Text/Event-Stream ; charset=utf-8", "content-encoding": "GZIP"}
    assert seen(headers("response_headers", told)) == AnswerSeen(200, "text/event-stream", "gzip", False)
    assert seen(headers("response_headers", {}, end=True)) == AnswerSeen(0, "", "", True)


def test_a_header_that_is_no_text() -> None:
    message = pb.ProcessingRequest()
    message.request_headers.headers.headers.add(key="x-llm-tenant", raw_value=b"\xff")
    assert seen(message.SerializeToString()) == RequestSeen(dialect=None, tenant="\ufffd")


def test_its_body_and_end() -> None:
    message = pb.ProcessingRequest(response_body=pb.HttpBody(body=b"ab", end_of_stream=True))
    assert seen(message.SerializeToString()) == PieceSeen(b"ab", True)
    trailers = pb.ProcessingRequest(response_trailers=pb.HttpTrailers())
    assert seen(trailers.SerializeToString()) == TrailersSeen()


@pytest.mark.parametrize("kind", ["request_body", "request_trailers"])
def test_what_does_not_matter(kind: str) -> None:
    message = pb.ProcessingRequest()
    getattr(message, kind).SetInParent()
    assert seen(message.SerializeToString()) is None
    assert seen(b"") is None


def test_no_message() -> None:
    with pytest.raises(DecodeError):
        seen(b"\xff\xff")

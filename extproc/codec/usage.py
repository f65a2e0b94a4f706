"""ext_proc messages of the observing filter to what was seen. Nothing is ever answered: Envoy would not listen."""

from __future__ import annotations

from extproc.codec.wire import ext_proc_pb2 as pb
from extproc.request import paths
from extproc.usage.seen import AnswerSeen, PieceSeen, RequestSeen, Seen, TrailersSeen

MODEL = "x-llm-model"


def seen(message: bytes) -> Seen | None:
    """One serialized ProcessingRequest; None for what does not matter here. DecodeError for bytes that are none."""
    request = pb.ProcessingRequest.FromString(message)
    match request.WhichOneof("request"):
        case "response_body":
            return PieceSeen(request.response_body.body, request.response_body.end_of_stream)
        case "request_headers":
            return _request(_texts(request.request_headers))
        case "response_headers":
            return _answer(_texts(request.response_headers), request.response_headers.end_of_stream)
        case "response_trailers":
            return TrailersSeen()
    return None


def _texts(headers: pb.HttpHeaders) -> dict[str, str]:
    """The last of each name: names of ours come once, in UTF-8."""
    pairs = headers.headers.headers
    return {pair.key: (pair.raw_value or pair.value.encode()).decode("utf-8", "replace") for pair in pairs}


def _request(headers: dict[str, str]) -> RequestSeen:
    target = paths.target(headers.get(":path", ""))
    return RequestSeen(
        dialect=target.dialect,
        model=headers.get(MODEL) or target.model or "",
        scenario=headers.get("x-llm-scenario", ""),
        tier=headers.get("x-llm-tier", ""),
        tenant=headers.get("x-llm-tenant", ""),
        pool=headers.get("x-llm-pool", ""),
        body_bytes=int(length) if (length := headers.get("content-length", "")).isdecimal() else 0,
    )


def _answer(headers: dict[str, str], over: bool) -> AnswerSeen:
    status = headers.get(":status", "")
    content_type = headers.get("content-type", "").partition(";")[0]
    return AnswerSeen(
        status=int(status) if status.isdecimal() else 0,
        content_type=content_type.strip().lower(),
        content_encoding=headers.get("content-encoding", "").strip().lower(),
        over=over,
    )
